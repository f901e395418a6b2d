#include "engine/core/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/json_text.h"

namespace warpstep {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("train", "trian"), 1U);  // one swap, not two replacements
  EXPECT_EQ(edit_distance("Adam", "aDAM"), 0U);
}

TEST(EditDistance, IsSymmetric) {
  const std::vector<std::string> words{"", "a", "ab", "ba", "train", "trian", "restrain", "eval"};
  for (const std::string& a : words)
    for (const std::string& b : words) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a));
}

const std::vector<std::string> options{"epochs", "batch", "seed", "steps", "lr", "resume"};

TEST(Nearest, FindsMisspellings) {
  EXPECT_EQ(nearest("epohcs", options), "epochs");
  EXPECT_EQ(nearest("sed", options), "seed");
  EXPECT_EQ(nearest("LR", options), "lr");
}

TEST(Nearest, FindsLongerAndShorterForms) {
  EXPECT_EQ(nearest("batchsize", options), "batch");
  EXPECT_EQ(nearest("batch-size", options), "batch");
  EXPECT_EQ(nearest("epo", options), "epochs");
}

TEST(Nearest, PrefersTheExactWord) {
  const std::vector<std::string> candidates{"stepsize", "step"};
  EXPECT_EQ(nearest("step", candidates), "step");
}

TEST(Nearest, SaysNothingRatherThanGuess) {
  EXPECT_EQ(nearest("momentum", options), "");
  const std::vector<std::string> models{"resnet18", "resnet50", "gpt2"};
  EXPECT_EQ(nearest("resnet101", models), "") << "another model, not a typo";
  EXPECT_EQ(nearest("resnt50", models), "resnet50");
  EXPECT_EQ(nearest("", options), "");
  EXPECT_EQ(nearest("batch", {}), "");
}

TEST(Suggestion, ReadsAsTheEndOfASentence) {
  EXPECT_EQ(suggestion("batchsize", options, "--"), "; did you mean --batch?");
  EXPECT_EQ(suggestion("momentum", options, "--"), "");
}

TEST(ShellWord, IsQuotedWhereAShellWouldChangeIt) {
  EXPECT_EQ(shell_word("runs/a-1.5"), "runs/a-1.5");
  EXPECT_EQ(shell_word("my run/2"), "'my run/2'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Printable, HasNothingThatATerminalObeys) {
  EXPECT_EQ(printable("conv1 \u00e4\u20ac\U0001F600"), "conv1 \u00e4\u20ac\U0001F600");
  EXPECT_EQ(printable("a\x1b[31m\n\t\r\x7f"), "a?[31m????");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\u0080\u009b31m\u009f\u00a0"), "??31m?\u00a0") << "C1, as ESC [";
  EXPECT_EQ(printable_lines("one\n\ttwo\x1b\r"), "one\n\ttwo??");
}

TEST(Quantity, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(quantity(0, Unit::ns), "0 ns");
  EXPECT_EQ(quantity(812, Unit::ns), "812 ns");
  EXPECT_EQ(quantity(-870'000, Unit::ns), "-870 us");
  EXPECT_EQ(quantity(999'600, Unit::ns), "1.00 ms");
  EXPECT_EQ(quantity(999'700, Unit::ns), "1.00 ms");
  EXPECT_EQ(quantity(12'345'678, Unit::ns), "12.3 ms");
  EXPECT_EQ(quantity(-2.5e6, Unit::ns), "-2.50 ms");
  EXPECT_EQ(quantity(4.81e9, Unit::ns), "4.81 s");
  EXPECT_EQ(quantity(61e9, Unit::ns), "61.0 s");
  EXPECT_EQ(quantity(7'200e9, Unit::ns), "7,200 s");
  EXPECT_EQ(quantity(512, Unit::bytes), "512 B");
  EXPECT_EQ(quantity(1536, Unit::bytes), "1.50 KiB");
  EXPECT_EQ(quantity(1.5 * 1024 * 1024, Unit::bytes), "1.50 MiB");
  EXPECT_EQ(quantity(3.0 * (1ULL << 30), Unit::bytes), "3.00 GiB");
  EXPECT_EQ(quantity(2.5e9, Unit::flops), "2.50 GFLOP");
  EXPECT_EQ(quantity(1.2e12, Unit::per_second_flops), "1.20 TFLOP/s");
  EXPECT_EQ(quantity(67e12, Unit::per_second_flops), "67.0 TFLOP/s");
  EXPECT_EQ(quantity(4.3e12, Unit::per_second_bytes), "4.30 TB/s");
  EXPECT_EQ(quantity(0.1234, Unit::share), "12.3 %");
  EXPECT_EQ(quantity(0.301, Unit::share), "30.1 %");
  EXPECT_EQ(quantity(0.0001, Unit::share), "< 0.1 %");
}

TEST(Quantity, GroupsCounts) {
  EXPECT_EQ(quantity(50'000, Unit::count), "50,000");
  EXPECT_EQ(quantity(-1'234'567, Unit::count), "-1,234,567");
  EXPECT_EQ(quantity(1'234'567'890'123, Unit::count), "1,234,567,890,123");
  EXPECT_EQ(quantity(3.14159, Unit::none), "3.142");
  EXPECT_EQ(quantity(0.0012345, Unit::none), "0.001234");
  EXPECT_EQ(quantity(std::nan(""), Unit::ns), "-");
  EXPECT_EQ(quantity(std::numeric_limits<double>::infinity(), Unit::count), "-");
  EXPECT_EQ(counted(1, "epoch"), "1 epoch");
  EXPECT_EQ(counted(std::size_t{12'000}, "step"), "12,000 steps");
}

TEST(Clipped, CountsCharacters) {
  EXPECT_EQ(characters("a\u00e4\u20ac\U0001F600"), 4U);
  EXPECT_EQ(clipped("a\u00e4\u20ac\U0001F600", 4), "a\u00e4\u20ac\U0001F600");
  EXPECT_EQ(clipped("a\u00e4\u20ac\U0001F600b", 4), "a...");
  EXPECT_EQ(clipped("\U0001F600\u20acabc", 4), "\U0001F600...");
  EXPECT_EQ(clipped("abcdef", 5), "ab...");
  EXPECT_EQ(clipped("", 4), "");
}

TEST(Printable, IsUtf8) {
  EXPECT_EQ(printable("a\x9b"
                      "31m\xff\xc3"),
            "a?31m??")
      << "bytes of no character";
  EXPECT_EQ(printable("\xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b"), "?? ??? ????") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80 \xed\x9f\xbf"), "??? \xed\x9f\xbf") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x8f\xbf\xbf \xf4\x90\x80\x80"), "\xf4\x8f\xbf\xbf ????");
  EXPECT_EQ(printable("\xe2\x82"), "??") << "cut";
}

TEST(ParseJson, RefusesWhatFollowsAZeroByte) {
  EXPECT_EQ(parse_json<nlohmann::json>("{\"a\": \"\\u0000\"} \n")["a"], std::string(1, '\0'));
  for (const std::string_view text : {std::string_view("{}\0x", 4), std::string_view("{}\0", 3)})
    EXPECT_TRUE(parse_json<nlohmann::json>(text).is_discarded()) << text.size();
}

// The parser with a callback takes half an hour for this list, as it looks through all of it again
// after each object.
TEST(ParseJson, ReadsALongListOfObjects) {
  constexpr std::size_t count = 300'000;
  std::string text = "[{}";
  for (std::size_t i = 1; i < count; ++i) text += ",{}";
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(text + "]").size(), count);
}

TEST(ParseJson, RefusesDeepTextsAndManyKeys) {
  const auto lists = [](std::size_t depth) {
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  };
  const auto keys = [](int count) {
    std::string text = "[{\"\\\":{[\": 0";
    for (int i = 1; i < count; ++i) text += "},{\"a\": 0";
    return text + "}]";
  };
  for (const std::string& text : {lists(64), keys(10'000)})
    EXPECT_FALSE(parse_json<nlohmann::json>(text).is_discarded()) << text.size();
  for (const std::string& text : {lists(65), keys(10'001), std::string("]]}[{")})
    EXPECT_TRUE(parse_json<nlohmann::json>(text).is_discarded()) << text.size();
}

TEST(JsonShape, CountsKeysOfEachObject) {
  const JsonShape shape = json_shape(R"({"a": {"b:": [1], "c": "}", "\\": 2}, "d": {}})", 64);
  EXPECT_EQ(shape.depth, 3U);
  EXPECT_EQ(shape.keys, 5U);
  EXPECT_EQ(shape.most_keys, 3U);
  EXPECT_EQ(shape.compared, 0U + 1 + 2 + 1);
}

TEST(JsonShape, OfWhatIsNotJson) {
  EXPECT_EQ(json_shape("]}{[", 64).depth, 2U);  // of which nothing was open
  EXPECT_EQ(json_shape(std::string(1000, '['), 64).depth, 65U);
}

}  // namespace
}  // namespace warpstep

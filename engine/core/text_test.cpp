#include "engine/core/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace warpstep

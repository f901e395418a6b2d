#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "data/formats/pickle.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

using Dict = std::map<PickleValue, PickleValue>;

Dict read(std::span<const std::uint8_t> file) {
  Dict dict;
  const PickleDict items = read_pickle(file, "labels.pkl");
  for (const auto& [key, value] : items.items) {
    EXPECT_TRUE(dict.emplace(items.value(key), items.value(value)).second);
  }
  return dict;
}

std::vector<std::uint8_t> fixture(const std::string& name) {
  std::vector<std::uint8_t> file;
  read_into(file, WARPSTEP_SOURCE_DIR "/data/testdata/" + name + ".pkl");
  return file;
}

PickleValue number(std::int64_t value) {
  return value;
}
PickleValue text(std::string value) {
  return value;
}

std::string refusal(const std::string& bytes) {
  const std::vector<std::uint8_t> file(bytes.begin(), bytes.end());
  return message_of([&] { read(file); });
}

class Protocol : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::uint8_t> file(const std::string& name) const {
    return fixture(name + "_" + std::to_string(GetParam()));
  }
};

TEST_P(Protocol, GivesNamesAndNumbers) {
  EXPECT_EQ(read(file("labels")), (Dict{{text("a.png"), number(0)},
                                        {text("b \\ 'quoted' \"name\".png"), number(1)},
                                        {text("bild-\u00e4\u00f6.png"), number(255)},
                                        {text("\u732b.png"), number(256)},
                                        {text("f\u00fcnf\n.png"), number(65535)}}));
}

TEST_P(Protocol, GivesNumbersOfEverySizeAndSign) {
  EXPECT_EQ(read(file("numbers")), (Dict{{number(0), number(3)},
                                         {number(1), number(-1)},
                                         {number(2), number(std::int64_t{1} << 31)},
                                         {number(3), number(-(std::int64_t{1} << 40))},
                                         {number(4), number(2)}}));
}

TEST_P(Protocol, GivesValuesSharedThroughTheMemo) {
  const Dict dict = read(file("many"));
  ASSERT_EQ(dict.size(), 70U);
  EXPECT_EQ(dict.at(text("00000.png")), text("cat"));
  EXPECT_EQ(dict.at(text("00067.png")), text("dog"));
  EXPECT_EQ(dict.at(text("00068.png")), text("ship"));
}

TEST_P(Protocol, RefusesCodeWithoutRunningIt) {
  const std::string mark = "/tmp/warpstep-pickle-was-executed";
  std::filesystem::remove(mark);
  const std::string message = message_of([&] { read(file("reduce")); });
  EXPECT_THAT(message, AllOf(HasSubstr("labels.pkl: byte "), HasSubstr("GLOBAL"),
                             HasSubstr("nothing was executed"), HasSubstr("pickle.dump(")));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_P(Protocol, NamesTheEndOfEveryTruncatedFile) {
  const auto whole = file("labels");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_THAT(message_of([&] { read(std::span(whole).first(bytes)); }), HasSubstr("byte "))
        << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Protocol, ::testing::Range(0, 6));

TEST(Pickle, ReadsBytesAndPython2) {
  const Dict expected{{text("a.png"), number(0)}, {text("\xff.png"), number(1)}};
  EXPECT_EQ(read(fixture("bytes_3")), expected);
  EXPECT_EQ(read(fixture("bytes_5")), expected);
  EXPECT_EQ(read(fixture("python2_2")),
            (Dict{{text("a.png"), number(0)}, {text("b.png"), number(1)}}));
  EXPECT_EQ(read(fixture("python2_0")),
            (Dict{{text("a.png"), number(0)}, {text("bA\n.png"), number(1)}}));
  EXPECT_TRUE(read(fixture("empty_2")).empty());
}

TEST(Pickle, RefusesWhatIsNoDictOfLabels) {
  const auto refused = [](const char* name) { return message_of([&] { read(fixture(name)); }); };
  EXPECT_THAT(refused("bytes_2"), HasSubstr("GLOBAL"));  // Python 3 calls codecs.encode there
  EXPECT_THAT(refused("built_2"), HasSubstr("GLOBAL"));
  EXPECT_THAT(refused("list_2"), HasSubstr("EMPTY_LIST"));
  EXPECT_THAT(refused("nested_2"), HasSubstr("a second dict"));
  EXPECT_THAT(refused("huge_2"), HasSubstr("an integer of 9 bytes"));
  EXPECT_THAT(refused("float_2"), HasSubstr("BINFLOAT"));
  EXPECT_THAT(refused("bool_0"), HasSubstr("a bool"));
  EXPECT_THAT(refused("none_4"), HasSubstr("NONE"));
}

TEST(Pickle, RefusesEveryOpcodeThatMakesObjects) {
  const std::pair<char, const char*> opcodes[] = {{'c', "GLOBAL (0x63)"},
                                                  {'R', "REDUCE (0x52)"},
                                                  {'b', "BUILD"},
                                                  {'i', "INST"},
                                                  {'o', "OBJ"},
                                                  {'\x81', "NEWOBJ"},
                                                  {'\x92', "NEWOBJ_EX"},
                                                  {'\x93', "STACK_GLOBAL"},
                                                  {'P', "PERSID"},
                                                  {'Q', "BINPERSID"},
                                                  {'\x82', "EXT1"},
                                                  {'\x97', "NEXT_BUFFER"},
                                                  {'\xff', "0xff (unknown)"}};
  for (const auto& [opcode, name] : opcodes) {
    EXPECT_THAT(
        refusal(std::string("\x80\x02}") + opcode),
        AllOf(HasSubstr("byte 3: opcode " + std::string(name)), HasSubstr("nothing was executed")));
  }
}

TEST(Pickle, RefusesBrokenMachines) {
  EXPECT_THAT(refusal("}u."), HasSubstr("no mark"));
  EXPECT_THAT(refusal("}(K\1u."), HasSubstr("a name without a label"));
  EXPECT_THAT(refusal("K\1(K\1K\1u."), HasSubstr("not a dict"));
  EXPECT_THAT(refusal("}K\1s."), HasSubstr("not a dict"));
  EXPECT_THAT(refusal("K\1."), HasSubstr("not a dict"));
  EXPECT_THAT(refusal("}}."), HasSubstr("a second dict"));
  EXPECT_THAT(refusal("}h\5."), HasSubstr("item 5, which was never stored"));
  EXPECT_THAT(refusal("q\1}."), HasSubstr("nothing on the stack"));
  EXPECT_THAT(refusal("(q\1}."), HasSubstr("a mark"));
  EXPECT_THAT(refusal("}(K\1(u."), HasSubstr("items for something that is not a dict"));
  EXPECT_THAT(refusal("}q\1(K\1h\1u."), HasSubstr("neither a name nor an integer"));
  EXPECT_THAT(refusal("}(K\1K\2K\1K\3u."), HasSubstr("'1' occurs twice"));
  EXPECT_THAT(refusal("\x80\x09}."), HasSubstr("protocol 9"));
  EXPECT_THAT(refusal("}I12x\n"), HasSubstr("'12x' is not an integer"));
  EXPECT_THAT(refusal("}S'a\n"), HasSubstr("repr()"));
  EXPECT_THAT(refusal("}V\\u12\n"), HasSubstr("repr()"));
  EXPECT_THAT(refusal("}\x8b\x09" + std::string(2, '\0') + "\x80"), HasSubstr("an integer of"));
  EXPECT_THAT(refusal("}X\xff\xff\xff\x7f"), HasSubstr("2147483647 more bytes expected, 0 left"));
  EXPECT_THAT(refusal("}X" + std::string("\0\1\0\0", 4) + std::string(256, 'a') + "K\1s."),
              HasSubstr("a name of 256 bytes"));
}

// A few bytes an item must not become a few hundred.
TEST(Pickle, KeepsATextThatManyShareOnce) {
  std::string file = "}X" + std::string("\xff\0\0\0", 4) + std::string(255, 'a') + "q\1";
  file = "}(" + file.substr(1) + std::string("K\0", 2);  // a name and its label
  for (char i = 1; i < 100; ++i) file += std::string("K") + i + "h\1";
  const std::vector<std::uint8_t> bytes = [&] {
    const std::string whole = file + "u.";
    return std::vector<std::uint8_t>(whole.begin(), whole.end());
  }();
  const PickleDict dict = read_pickle(bytes, "labels.pkl");
  EXPECT_EQ(dict.items.size(), 100U);
  EXPECT_EQ(dict.texts.size(), 1U);
  EXPECT_EQ(dict.value(dict.items[57].second), text(std::string(255, 'a')));
}

TEST(Pickle, WritesWhatItReads) {
  const testing::Labels labels{{"a.png", 0}, {"\u732b.png", 70000}};
  const auto file = write_pickle(labels);
  EXPECT_EQ(read(file), (Dict{{text("a.png"), number(0)}, {text("\u732b.png"), number(70000)}}));
}

}  // namespace
}  // namespace warpstep::data

#include "tools/warpstep/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace warpstep::tools {
namespace {

using Values = std::vector<std::string>;

std::map<std::string, Values> options_of(std::string_view text) {
  std::map<std::string, Values> values;
  for (const TomlOption& option : read_toml(text, "run.toml"))
    values.emplace(option.key, option.values);
  return values;
}

// What is said behind the file's name.
std::string refused(std::string_view text) {
  try {
    read_toml(text, "run.toml");
  } catch (const UsageError& error) {
    const std::string message = error.what(), file = "run.toml: ";
    EXPECT_EQ(message.substr(0, file.size()), file);
    return message.substr(file.size());
  }
  return "nothing";
}

TEST(Toml, ReadsStringsNumbersBooleansAndLists) {
  const auto read = options_of(
      "# a comment\r\n"
      "batch=64# another\n"
      "  lr = 1e-3\t# and another\n"
      "steps = 1_000\n"
      "quiet = true\n"
      "model = \"mlp\"\n"
      "device = cuda:1\n"
      "data = [\"a b\", 'c,d',\n  # in a list\n 3, ]\n"
      "\"mean\" = [ 0.5 ]\n"
      "'std' = .5");
  EXPECT_EQ(read.at("batch"), Values{"64"});
  EXPECT_EQ(read.at("lr"), Values{"1e-3"});
  EXPECT_EQ(read.at("steps"), Values{"1000"});
  EXPECT_EQ(read.at("quiet"), Values{"true"});
  EXPECT_EQ(read.at("model"), Values{"mlp"});
  EXPECT_EQ(read.at("device"), Values{"cuda:1"});
  EXPECT_EQ(read.at("data"), (Values{"a b", "c,d", "3"}));
  EXPECT_EQ(read.at("mean"), Values{"0.5"});
  EXPECT_EQ(read.at("std"), Values{".5"});
  EXPECT_EQ(read.size(), 9U);
}

TEST(Toml, KnowsTheLinesOfOptions) {
  const auto read = read_toml("\na = [1,\n\n2]\n\n# b\nb = 1\n", "run.toml");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].line, 2);
  EXPECT_EQ(read[1].line, 7);
}

TEST(Toml, KeepsWhatStringsHold) {
  const auto read = options_of(R"(
out = "runs/lr#1"  # not this
data = ["set#2", "x]y", "a, b", '#']
quoted = "a \"b\" \\ c"
literal = 'C:\new "x" #1'
escapes = "\t\n\u00e9\U0001F600"
empty = ""
name = "a = [b]")");
  EXPECT_EQ(read.at("out"), Values{"runs/lr#1"});
  EXPECT_EQ(read.at("data"), (Values{"set#2", "x]y", "a, b", "#"}));
  EXPECT_EQ(read.at("quoted"), Values{"a \"b\" \\ c"});
  EXPECT_EQ(read.at("literal"), Values{"C:\\new \"x\" #1"});
  EXPECT_EQ(read.at("escapes"), Values{"\t\n\xC3\xA9\xF0\x9F\x98\x80"});
  EXPECT_EQ(read.at("empty"), Values{""});
  EXPECT_EQ(read.at("name"), Values{"a = [b]"});
  EXPECT_EQ(options_of("out = r\xC3\xA9sultats").at("out"), Values{"r\xC3\xA9sultats"});
}

TEST(Toml, LeavesWordsThatAreNoNumbers) {
  for (const char* word : {"_1", "1_", "1__0", "a_b", "e_1", "0x1_0"})
    EXPECT_EQ(options_of(std::string("out = ") + word).at("out"), Values{word});
}

TEST(Toml, HasNothingToReadInComments) {
  EXPECT_TRUE(options_of("").empty());
  EXPECT_TRUE(options_of("\n \t\r\n# batch = 1").empty());
}

TEST(Toml, NamesTheLineAndTheFixOfWhatIsWrong) {
  EXPECT_EQ(refused("a = 1\nbatch 16"),
            "line 2: 'batch 16' has no '='; write an option as batch = 64");
  EXPECT_EQ(refused("batch size = 16"),
            "line 1: 'batch size = 16' has no '=' after one name; write an option as batch = 64");
  EXPECT_EQ(refused("= 16"), "line 1: '= 16' has no name; write an option as batch = 64");
  EXPECT_EQ(refused("batch: 16"),
            "line 1: 'batch: 16' is YAML; files of options are TOML: batch = 64");
  EXPECT_EQ(refused("[data]"), "line 1: section [data]: write its keys at the top level");
  EXPECT_EQ(refused("data.batch = 1"), "line 1: section [data]: write its keys at the top level");
  EXPECT_EQ(refused("a = 1\n\na = 2"),
            "line 3: a is given in line 1 already; give it once, several "
            "values as a list: [1, 2]");
  EXPECT_EQ(refused("out = my run"),
            "line 1: out has 'run' after its value; write text in quotes "
            "and several values as a list: [1, 2]");
  EXPECT_EQ(refused("out = lr#1"),
            "line 1: out has '#' within a word; write text in quotes, or a "
            "blank before a comment");
  EXPECT_EQ(refused("out = # later"),
            "line 1: out has nothing where a value belongs: a number, "
            "true, false or text in quotes");
  EXPECT_EQ(refused("a = [1,\n, 2]"),
            "line 2: a has ', 2]' where a value belongs: a number, true, "
            "false or text in quotes");
  EXPECT_EQ(refused("a = []"), "line 1: a = [] gives no value; leave it out");
}

TEST(Toml, NamesTheLineWhereWhatIsNotClosedBegins) {
  EXPECT_EQ(refused("a = 1\nout = \"runs\nb = 2"),
            "line 2: out has a quote \" that is not closed in its line");
  EXPECT_EQ(refused("out = 'runs"), "line 1: out has a quote ' that is not closed in its line");
  EXPECT_EQ(refused("\"out = 1"), "line 1: a name has a quote \" that is not closed in its line");
  EXPECT_EQ(refused("out = \"runs\\"),
            "line 1: out has a '\\' that begins no escape; write \\\\, or "
            "text in single quotes");
  EXPECT_EQ(refused("a = 1\ndata = [1,\n2,\n\n"), "line 2: the list of data has no ']' at its end");
  EXPECT_EQ(refused("data = ["), "line 1: the list of data has no ']' at its end");
  EXPECT_EQ(refused("data = [1\nbatch = 2"),
            "line 2: the list of data, which begins in line 1, has 'batch = 2' where ',' or ']' "
            "belongs");
}

TEST(Toml, RefusesTheRestOfToml) {
  EXPECT_THAT(refused("a = [[1], [2]]"), testing::HasSubstr("line 1: a has '[1], [2]]' where"));
  EXPECT_THAT(refused("a = {b = 1}"), testing::HasSubstr("line 1: a has '{b = 1}' where a value"));
  for (const char* quotes : {"\"\"\"", "'''"})
    EXPECT_THAT(refused(std::string("a = ") + quotes + "\nb" + quotes),
                testing::HasSubstr("line 1: three quotes begin text of several lines"));
}

TEST(Toml, RefusesEscapesThatAreNone) {
  EXPECT_THAT(refused(R"(a = "\d")"), testing::HasSubstr("a has a '\\' that begins no escape"));
  for (const char* escape : {"\\u12", "\\u12G4", "\\ud800", "\\u0000", "\\U00110000", "\\U-0000001",
                             "\\u+123", "\\u 123"})
    EXPECT_THAT(refused(std::string("a = \"") + escape + "\""),
                testing::HasSubstr("line 1: a has an escape that is no character"))
        << escape;
}

TEST(Toml, RefusesBytesThatAreNoText) {
  EXPECT_EQ(refused("a = 1\nb = \"\xFF\""),
            "line 2: it is not UTF-8; save the file in that encoding");
  EXPECT_EQ(refused("# \xC3"), "line 1: it is not UTF-8; save the file in that encoding");
  EXPECT_EQ(refused(std::string_view("a = \"\0\"", 7)),
            "line 1: it has the control character U+0000; write it as an escape");
  EXPECT_EQ(refused("a = 1\rb = 2"),
            "line 1: it has the control character U+000D; write it as an escape");
}

// As long as a file may be: each is read to its end or refused, without recursion.
TEST(Toml, EndsWithAnyRepetition) {
  for (const std::string part : {"[", "]", "\"", "'", "\\", "a", "=", "a=[", ",", "#", "\n",
                                 "a=1\n", "a=\"\\", ".", ":", " ", "\xC3\xA9"}) {
    std::string text = "a = [\"";
    while (text.size() < 65'000) text += part;
    for (const std::size_t begin : {0U, 4U, 5U, 6U})
      EXPECT_NO_FATAL_FAILURE(refused(std::string_view(text).substr(begin))) << part;
  }
}

}  // namespace
}  // namespace warpstep::tools

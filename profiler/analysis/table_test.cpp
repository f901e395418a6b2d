#include "profiler/analysis/table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace warpstep::profiler {
namespace {

TEST(Shown, HasAUnit) {
  EXPECT_EQ(shown(812.0, Unit::ns), "812 ns");
  EXPECT_EQ(shown(std::int64_t{12'300'000}, Unit::ns), "12.3 ms");
  EXPECT_EQ(shown(std::int64_t{512}, Unit::bytes), "512 B");
}

TEST(Shown, GroupsCountsButNoIdentifiers) {
  EXPECT_EQ(shown(std::int64_t{1234}, Unit::none), "1234");
  EXPECT_EQ(shown(std::int64_t{1'234'567'890'123}, Unit::count), "1,234,567,890,123");
  EXPECT_EQ(shown(128.0, Unit::none), "128");
  EXPECT_EQ(shown(std::string("conv1"), Unit::ns), "conv1");
}

TEST(Shown, SaysWhatIsNotKnown) {
  EXPECT_EQ(shown({}, Unit::ns), "-");
  EXPECT_EQ(shown(std::nan(""), Unit::share), "-");
}

Table small_table() {
  return {"layers",
          "Layers",
          "",
          {{"layer", "layer"}, {"time_ns", "time", Unit::ns}, {"share", "share", Unit::share}},
          {{std::string("conv1"), 1.5e6, 0.75},
           {std::string("a, \"b\"\nc"), std::int64_t{500}, {}},
           {std::string("f\u00fcr")}}};
}

TEST(Text, HasNothingThatATerminalObeys) {
  const Table table{"x", "X", "", {{"n", "na\x1bme"}}, {{std::string("a\x1b[2J\n\u009bb\xff")}}};
  EXPECT_EQ(to_text(table), "na?me\na?[2J ?b?\n");
  EXPECT_EQ(to_csv(table), "n\r\n\"a\x1b[2J\n\u009bb\xff\"\r\n") << "as it is";
}

TEST(Columns, AreChosenInOrderWithoutUnknownOnes) {
  Table table = small_table();
  const Table chosen = with_columns(table, {"share", "layer", "no such"});
  EXPECT_EQ(to_csv(chosen).substr(0, 25), "share,layer\r\n0.75,conv1\r\n");
  EXPECT_EQ(with_columns(table).columns.size(), 3U);
  for (auto& row : table.rows) row.resize(2);
  EXPECT_EQ(with_columns(table).columns.size(), 2U);
  EXPECT_EQ(rows_of(table, "layer", "conv1").rows.size(), 1U);
  EXPECT_TRUE(rows_of(table, "no such", "conv1").rows.empty());
}

TEST(Csv, QuotesAsRfc4180Wants) {
  EXPECT_EQ(to_csv(small_table()),
            "layer,time_ns,share\r\nconv1,1500000,0.75\r\n\"a, \"\"b\"\"\nc\",500,\r\n"
            "f\u00fcr,,\r\n");
  EXPECT_EQ(to_csv({}), "\r\n");
}

TEST(Csv, NamesAreNoFormulas) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"=1+1", "'=1+1"},
      {"+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"},
      {"-2+3", "'-2+3"},
      {"@SUM(A1)", "'@SUM(A1)"},
      {"\tx", "'\tx"},
      {"\r=1", "\"'\r=1\""},
      {"=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""},
      {"-inf", "'-inf"},
      {"-1.5", "-1.5"},
      {"+2e-3", "+2e-3"},
      {"a=b", "a=b"}};
  for (const auto& [name, field] : cases)
    EXPECT_EQ(to_csv({"t", "t", "", {{"x", "x"}}, {{name}}}), "x\r\n" + field + "\r\n");
  EXPECT_EQ(to_csv({"t", "t", "", {{"x", "x"}}, {{-1.5}, {std::int64_t{-3}}}}),
            "x\r\n-1.5\r\n-3\r\n");
}

TEST(Csv, KeepsEveryDigit) {
  Table table{"t", "t", "", {{"x", "x"}}, {{1.0 / 3}, {1e-300}, {std::nan("")}}};
  EXPECT_EQ(to_csv(table), "x\r\n0.3333333333333333\r\n1e-300\r\n\r\n");
}

TEST(TableJson, HasAnObjectARow) {
  EXPECT_EQ(to_json(small_table()).dump(),
            R"([{"layer":"conv1","time_ns":1500000.0,"share":0.75},)"
            R"({"layer":"a, \"b\"\nc","time_ns":500,"share":null},)"
            "{\"layer\":\"f\u00fcr\",\"time_ns\":null,\"share\":null}]");
  EXPECT_EQ(to_json({}).dump(), "[]");
}

TEST(Text, AlignsNumbersToTheRight) {
  EXPECT_EQ(to_text(small_table()),
            "layer        time   share\n"
            "conv1     1.50 ms  75.0 %\n"
            "a, \"b\" c   500 ns       -\n"
            "f\u00fcr             -       -\n");
}

TEST(Text, CountsWhatItLeavesOutAndClipsLongCells) {
  Table table = small_table();
  table.rows[0][0] = std::string(100, 'x');
  const std::string text = to_text(table, 1);
  EXPECT_NE(text.find(std::string(61, 'x') + "... "), std::string::npos);
  EXPECT_NE(text.find("... and 2 more\n"), std::string::npos);
}

}  // namespace
}  // namespace warpstep::profiler

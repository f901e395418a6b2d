#include "profiler/analysis/nesting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace warpstep::profiler::analysis {
namespace {

TEST(Nesting, GivesEachMomentToTheInnermost) {
  const Nesting nesting = nest({{0, 100}, {10, 40}, {20, 30}, {50, 60}, {200, 210}});
  EXPECT_EQ(nesting.parent, (std::vector<std::int64_t>{-1, 0, 1, 0, -1}));
  std::vector<std::uint64_t> self(5);
  for (const Slice& slice : nesting.slices) self[slice.item] += slice.end_ns - slice.begin_ns;
  EXPECT_EQ(self, (std::vector<std::uint64_t>{60, 20, 10, 10, 10}));
}

// Any overlaps: at each moment the one that began last, of those that run.
TEST(Nesting, AgreesWithACountOfEveryNanosecond) {
  std::mt19937 random(5);
  const auto upto = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random);
  };
  for (int round = 0; round < 3'000; ++round) {
    std::vector<Interval> items(upto(8));
    for (Interval& item : items) {
      item.begin_ns = upto(40);
      item.end_ns = item.begin_ns + upto(15);
    }
    std::stable_sort(items.begin(), items.end(), [](const Interval& a, const Interval& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::vector<std::int64_t> inner(60, -1), got(60, -1);
    for (std::size_t i = 0; i < items.size(); ++i)
      for (std::uint64_t t = items[i].begin_ns; t < items[i].end_ns; ++t)
        inner[t] = static_cast<std::int64_t>(i);
    std::uint64_t end = 0;
    for (const Slice& slice : nest(items).slices) {
      ASSERT_LE(end, slice.begin_ns);
      ASSERT_LT(slice.begin_ns, slice.end_ns);
      end = slice.end_ns;
      for (std::uint64_t t = slice.begin_ns; t < end; ++t)
        got[t] = static_cast<std::int64_t>(slice.item);
    }
    ASSERT_EQ(got, inner);
  }
}

}  // namespace
}  // namespace warpstep::profiler::analysis

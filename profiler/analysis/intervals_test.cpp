#include <gtest/gtest.h>

#include <random>

#include "profiler/analysis/breakdown.h"

namespace warpstep::profiler {
namespace {

using Intervals = std::vector<Interval>;
constexpr std::uint64_t horizon = 60;

// The truth: a flag a ns.
std::vector<bool> flags(const Intervals& intervals) {
  std::vector<bool> set(horizon);
  for (const Interval& i : intervals)
    for (std::uint64_t t = i.begin_ns; t < i.end_ns; ++t) set[t] = true;
  return set;
}

bool is_sound(const Intervals& disjoint) {
  for (std::size_t i = 0; i < disjoint.size(); ++i) {
    if (disjoint[i].begin_ns >= disjoint[i].end_ns) return false;
    if (i > 0 && disjoint[i].begin_ns < disjoint[i - 1].end_ns) return false;
  }
  return true;
}

class Draws {
 public:
  std::uint64_t upto(std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random_);
  }
  Intervals intervals(std::uint64_t most) {
    Intervals drawn(upto(most));
    for (Interval& i : drawn) {
      i.begin_ns = upto(horizon);
      i.end_ns = std::min(horizon, i.begin_ns + upto(12));
    }
    return drawn;
  }
  // Disjoint and in order, with gaps or without, some empty.
  Intervals steps() {
    Intervals drawn;
    std::uint64_t at = upto(10);
    for (std::uint64_t n = upto(5); n > 0 && at < horizon; --n) {
      const std::uint64_t end = std::min(horizon, at + upto(15));
      drawn.push_back({at, end});
      at = end + (upto(1) == 0 ? 0 : upto(6));
    }
    return drawn;
  }

 private:
  std::mt19937 random_{7};
};

TEST(Intervals, AgreeWithFlags) {
  Draws draws;
  for (int i = 0; i < 5'000; ++i) {
    const Intervals some = draws.intervals(8), others = draws.intervals(8);
    const Intervals a = merged(some), b = merged(others);
    const std::vector<bool> in_a = flags(some), in_b = flags(others);
    ASSERT_TRUE(is_sound(a));
    ASSERT_EQ(flags(a), in_a);
    const Intervals both = intersection(a, b), rest = difference(a, b);
    ASSERT_TRUE(is_sound(both) && is_sound(rest));
    const std::vector<bool> in_both = flags(both), in_rest = flags(rest);
    std::uint64_t count = 0;
    for (std::size_t t = 0; t < horizon; ++t) {
      ASSERT_EQ(in_both[t], in_a[t] && in_b[t]);
      ASSERT_EQ(in_rest[t], in_a[t] && !in_b[t]);
      count += in_a[t] ? 1 : 0;
    }
    ASSERT_EQ(total_ns(a), count);
  }
}

TEST(Intervals, MergeTouchingAndDropEmptyOnes) {
  const Intervals m = merged({{5, 7}, {1, 3}, {3, 5}, {9, 9}, {20, 10}});
  ASSERT_EQ(m.size(), 1U);
  EXPECT_EQ(m[0].begin_ns, 1U);
  EXPECT_EQ(m[0].end_ns, 7U);
  EXPECT_TRUE(merged({}).empty());
}

TEST(Sweep, AgreesWithACountOfEveryNanosecond) {
  Draws draws;
  for (int i = 0; i < 10'000; ++i) {
    const Intervals steps = draws.steps();
    std::array<Intervals, categories> wanted;
    for (Intervals& of : wanted) of = draws.intervals(5);
    const std::vector<Parts> parts = sweep(steps, wanted);
    ASSERT_EQ(parts.size(), steps.size());
    std::array<std::vector<bool>, categories> set;
    for (std::size_t c = 0; c < categories; ++c) set[c] = flags(wanted[c]);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      Parts truth{};
      for (std::uint64_t t = steps[s].begin_ns; t < steps[s].end_ns; ++t) {
        std::size_t c = 0;
        while (c + 1 < categories && !set[c][t]) ++c;
        ++truth[c];
      }
      ASSERT_EQ(parts[s], truth) << "case " << i << ", step " << s;
    }
  }
}

TEST(Sweep, AddsUpWithoutSteps) {
  EXPECT_TRUE(sweep({}, {}).empty());
}

}  // namespace
}  // namespace warpstep::profiler

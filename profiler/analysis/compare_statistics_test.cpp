#include "profiler/analysis/compare_statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "profiler/analysis/testing_compare.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;

using Runs = std::vector<std::vector<double>>;

TEST(CompareStatistics, TakesMedians) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 2}), 2);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
  EXPECT_THAT(part_medians({1, 9, 1, 4, 4, 5}, 2), ElementsAre(1, 4));
  EXPECT_THAT(part_medians({1, 2, 3, 4, 5}, 2), ElementsAre(1.5, 4));
  EXPECT_EQ(parts_of(8), 4U);
  EXPECT_EQ(parts_of(20), 6U);
  EXPECT_EQ(parts_of(5000), 10U);
}

TEST(CompareStatistics, KnowsStudentsDistribution) {
  // The 95 % points of printed tables; one degree of freedom is Cauchy's: 1/2 at t = 1.
  EXPECT_NEAR(student_95(1), 12.706, 1e-3);
  EXPECT_NEAR(student_95(4), 2.776, 1e-3);
  EXPECT_NEAR(student_95(8), 2.306, 1e-3);
  EXPECT_NEAR(student_95(4.2), student_95(4), 1e-6);
  EXPECT_LT(student_95(4.5), student_95(4));
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-9);
  EXPECT_NEAR(student_p(0, 7), 1, 1e-6);
  EXPECT_NEAR(student_p(4.032, 5), 0.01, 1e-5);
}

TEST(CompareStatistics, OneRunASideHasThePriorAlone) {
  // Without noise within the runs: 2.776 of sqrt(2) sd.
  const Difference found = difference_of_runs({{100, 100}}, {{104, 104}}, {.sd = 1, .freedom = 4});
  EXPECT_NEAR(found.least, 2.776 * std::sqrt(2.0), 1e-3);
  EXPECT_NEAR(found.low, 4 - found.least, 1e-9);
  EXPECT_LT(found.p, 0.05);
}

TEST(CompareStatistics, WhatAllRunsHaveInCommonIsNoNoise) {
  // Every run is twice as slow at first; then one of them is so at its end, too.
  const Prior prior{.sd = 0, .freedom = 4};
  EXPECT_NEAR(difference_of_runs({{200, 100, 100}}, {{201, 101, 101}}, prior).least, 0, 1e-9);
  // The interaction by hand: deviations (-33, -33, 67) of each other, halved: squares 3333 of 2
  // degrees of freedom, over 3 parts.
  EXPECT_NEAR(difference_of_runs({{200, 100, 100}}, {{200, 100, 200}}, prior).least,
              student_95(2) * std::sqrt(2 * 3333.333 / 2 / 3), 0.1);
}

TEST(CompareStatistics, BiasOnlyWidens) {
  const Prior prior{.sd = 1, .freedom = 4};
  const Difference plain = difference_of_runs({{100, 100}}, {{123, 123}}, prior);
  const Difference biased = difference_of_runs({{100, 100}}, {{123, 123}}, prior, {.down = 40});
  EXPECT_LT(plain.p, 0.001);
  EXPECT_NEAR(biased.p, 1, 1e-6);
  EXPECT_LT(biased.low, 0);
  EXPECT_EQ(biased.high, plain.high);
}

// Runs whose levels spread by `sd` (%) around 100, without noise within.
Runs side(int runs, double sd, double change, std::uint32_t seed) {
  Runs made;
  for (int r = 0; r < runs; ++r) {
    const double level = 100 + change + sd * testing::normal(seed, static_cast<std::uint64_t>(r));
    made.push_back({level, level});
  }
  return made;
}

double share_found(int before, int after, double sd, double change) {
  constexpr int trials = 2000;
  int count = 0;
  for (std::uint32_t t = 0; t < trials; ++t) {
    const Difference found = difference_of_runs(
        side(before, sd, 0, 2 * t), side(after, sd, change, 2 * t + 1), {.sd = 0.91, .freedom = 5});
    if (found.low > 0 || found.high < 0) ++count;
  }
  return static_cast<double>(count) / trials;
}

TEST(CompareStatistics, EqualRunsSeldomDiffer) {
  for (const int runs : {1, 2, 3, 4, 5}) EXPECT_LE(share_found(runs, runs, 0.91, 0), 0.05) << runs;
  EXPECT_LE(share_found(2, 5, 0.91, 0), 0.05);
  EXPECT_LE(share_found(1, 3, 0.91, 0), 0.05);
  EXPECT_LE(share_found(3, 3, 0.45, 0), 0.05);
  EXPECT_GE(share_found(5, 5, 0.91, 0), 0.02) << "a test that never finds one would show nothing";
}

TEST(CompareStatistics, NoisyShortRunsSeldomDiffer) {
  constexpr int trials = 2000;
  for (const std::size_t steps : {8U, 10U, 14U, 22U}) {
    int count = 0;
    for (std::uint32_t t = 0; t < trials; ++t) {
      Runs runs;
      for (std::uint32_t side = 0; side < 2; ++side) {
        std::vector<double> ns;
        for (std::size_t i = 0; i < steps; ++i)
          ns.push_back(100 + 10 * testing::normal(2 * t + side, i));
        runs.push_back(part_medians(ns, parts_of(steps)));
      }
      const Difference found = difference_of_runs({runs[0]}, {runs[1]}, {.sd = 0.91, .freedom = 5});
      if (found.low > 0 || found.high < 0) ++count;
    }
    EXPECT_LE(count, 0.075 * trials) << steps;
    EXPECT_GE(count, 0.01 * trials) << steps;
  }
}

TEST(CompareStatistics, ThreeRunsASideShowThreePercent) {
  EXPECT_GE(share_found(3, 3, 0.91, 3),
            0.945);  // 95.6 % in 400,000 trials; a standard error of 0.5 %
  EXPECT_GE(share_found(3, 3, 0.9, -3), 0.95);
  EXPECT_LE(share_found(1, 1, 0.91, 3), 0.6) << "which one run a side does not";
}

TEST(CompareStatistics, LearnsFromRunsThatSpreadMore) {
  // Twice the prior's sd: the runs' own spread counts by its degrees of freedom.
  EXPECT_LE(share_found(5, 5, 1.82, 0), 0.11);
  EXPECT_LT(share_found(5, 5, 1.82, 0), share_found(1, 1, 1.82, 0));
}

TEST(CompareStatistics, FamilyIsHeldTo) {
  // The example of Benjamini and Hochberg: 15 hypotheses, q 0.05, the first four are rejected.
  const std::vector<double> p{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                              0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0};
  const std::vector<bool> result = rejected(p, 0.05);
  EXPECT_EQ(std::count(result.begin(), result.end(), true), 4);
  EXPECT_TRUE(result[3]);
  EXPECT_THAT(rejected({0.04, 0.5}, 0.05), ElementsAre(false, false));
  EXPECT_THAT(rejected({0.04, 0.045}, 0.05), ElementsAre(true, true));
  EXPECT_TRUE(rejected({}, 0.05).empty());
}

}  // namespace
}  // namespace warpstep::profiler

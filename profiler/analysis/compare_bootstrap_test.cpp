#include "profiler/analysis/compare_bootstrap.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;

TEST(Bootstrap, TakesMedians) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 2}), 2);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

TEST(Bootstrap, ResamplesHaveTheMediansOfWhatWasDrawn) {
  // With two values the median says how often each was drawn.
  const Resamples resamples({2}, 4000, 1, 0);
  const std::vector<double> medians = resamples.medians({0, 1});
  EXPECT_NEAR(static_cast<double>(std::count(medians.begin(), medians.end(), 0.0)), 1000, 90);
  EXPECT_NEAR(static_cast<double>(std::count(medians.begin(), medians.end(), 0.5)), 2000, 110);
  EXPECT_NEAR(static_cast<double>(std::count(medians.begin(), medians.end(), 1.0)), 1000, 90);
}

TEST(Bootstrap, DrawsEachStratumByItself) {
  // Three steps of one window and two of another: the median is always one of the three zeros.
  const std::vector<double> medians = Resamples({3, 2}, 500, 1, 0).medians({0, 0, 0, 9, 9});
  EXPECT_EQ(std::count(medians.begin(), medians.end(), 0.0), 500);
  const std::vector<double> together = Resamples({5}, 500, 1, 0).medians({0, 0, 0, 9, 9});
  EXPECT_LT(std::count(together.begin(), together.end(), 0.0), 450);
}

TEST(Bootstrap, TheErrorOfAMedianIsThatOfTheory) {
  // Of n equally spaced values in [0, 1]: 1 / (2 f sqrt(n)) with a density f of 1.
  std::vector<double> values(400);
  std::iota(values.begin(), values.end(), 0.5);
  for (double& value : values) value /= 400;
  const std::vector<double> medians = Resamples({400}, 4000, 1, 0).medians(values);
  const double mean = std::accumulate(medians.begin(), medians.end(), 0.0) / 4000;
  double squares = 0;
  for (const double m : medians) squares += (m - mean) * (m - mean);
  EXPECT_NEAR(std::sqrt(squares / 4000), 1 / (2 * std::sqrt(400.0)), 0.0015);
}

TEST(Bootstrap, DrawsBlocksOfNeighbours) {
  // A run whose first half is 0 and whose second is 1: four stretches of 25 seldom balance.
  std::vector<double> values(100, 0.0);
  std::fill(values.begin() + 50, values.end(), 1.0);
  const auto extremes = [&](std::size_t block) {
    const std::vector<double> medians = Resamples({100}, 1000, 1, 0, block).medians(values);
    return std::count_if(medians.begin(), medians.end(), [](double m) { return m != 0.5; });
  };
  EXPECT_GT(extremes(25), 600);
  std::vector<double> ramp(100);
  std::iota(ramp.begin(), ramp.end(), 0.0);
  const auto spread = [&](std::size_t block) {
    std::vector<double> medians = Resamples({100}, 1000, 1, 0, block).medians(ramp);
    std::sort(medians.begin(), medians.end());
    return medians[840] - medians[160];
  };
  EXPECT_GT(spread(20), 2 * spread(1));
  EXPECT_EQ(Resamples({7}, 50, 1, 0, 3).medians(std::vector<double>(7, 4.0)),
            std::vector<double>(50, 4.0));
}

TEST(Bootstrap, SeesCorrelationThatStandsOut) {
  std::vector<double> waves, noise;
  for (int i = 0; i < 60; ++i) {
    waves.push_back(std::sin(i / 5.0));
    noise.push_back(i % 2 == 0 ? 1.0 : -1.0);
  }
  EXPECT_GT(correlation(waves, {60}), 0.9);
  EXPECT_EQ(correlation(noise, {60}), 0);
  EXPECT_EQ(correlation(std::vector<double>(60, 3.0), {60}), 0);
  EXPECT_EQ(correlation({}, {}), 0);
  // Two windows at two levels are strata, and their border is no step.
  EXPECT_EQ(correlation({1, 2}, {1, 1}), 0);
  EXPECT_EQ(block_length(0, 60), 1U);
  EXPECT_EQ(block_length(0.8, 60), 13U);  // (6 * 0.64 / 0.1296 * 60)^(1/3) = 12.1
  EXPECT_EQ(block_length(0.99, 60), 20U);
}

TEST(Bootstrap, DifferenceHasAnIntervalAndAProbability) {
  std::vector<double> before(1000), after(1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    before[i] = 100;
    after[i] = 100 + static_cast<double>(i) / 100;  // 100 .. 110
  }
  const Difference found = median_difference(5, before, after);
  EXPECT_NEAR(found.low, 0.25, 0.011);
  EXPECT_NEAR(found.high, 9.74, 0.011);
  EXPECT_GT(found.p, 0.08);  // 5 of a standard error of 2.9
  EXPECT_LT(found.p, 0.09);
  EXPECT_EQ(median_difference(0, before, before).p, 1);
  EXPECT_EQ(median_difference(5, before, std::vector<double>(1000, 105)).p, 0);
}

TEST(Bootstrap, FamilyIsHeldTo) {
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

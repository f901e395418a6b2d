// Runs whose steps are like their neighbours, as when clocks or other programs come and go.
#include <gmock/gmock.h>

#include <cmath>

#include "engine/core/random.h"
#include "profiler/analysis/compare.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Steps of 1 ms with noise of 2 %, of which each keeps `r` of the one before.
Session drifting(double r, std::uint32_t seed) {
  testing::SessionBuilder builder;
  double now = 0, level = 0;
  for (std::uint64_t s = 0; s < 60; ++s) {
    const auto words = draw(seed, Purpose::synthetic, 5, s);
    const double u = (words[0] + 0.5) / 4294967296.0, v = words[1] / 4294967296.0;
    level = r * level +
            std::sqrt(1 - r * r) * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    const double us = 1000 * std::exp(0.02 * level);
    builder.step(s + 1, now, now + us);
    now += us;
  }
  return builder.window(1, 60, 0, now).build();
}

int flagged(double r) {
  int count = 0;
  for (std::uint32_t trial = 0; trial < 200; ++trial) {
    const Comparison found = compare(drifting(r, 2 * trial), drifting(r, 2 * trial + 1),
                                     {.least_share = 0, .resamples = 500});
    count += found.changes.front().is_told ? 1 : 0;
  }
  return count;
}

TEST(CompareDrift, EqualRunsSeldomDifferWhileTheyDrift) {
  EXPECT_LE(flagged(0), 20);    // 5 %, and three standard errors
  EXPECT_LE(flagged(0.7), 40);  // steps drawn one by one flag more than a third
}

TEST(CompareDrift, IsWarnedOf) {
  EXPECT_THAT(compare(drifting(0.95, 1), drifting(0, 2)).warnings,
              Contains(HasSubstr("steps of the run before are like their neighbours")));
  EXPECT_THAT(compare(drifting(0, 1), drifting(0, 2)).warnings,
              Not(Contains(HasSubstr("neighbours"))));
}

}  // namespace
}  // namespace warpstep::profiler

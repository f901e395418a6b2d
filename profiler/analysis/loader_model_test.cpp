#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "engine/core/random.h"
#include "profiler/analysis/loading.h"

namespace warpstep::profiler {
namespace {

constexpr std::uint64_t ms = 1'000'000;
const std::vector<std::uint64_t> ten_ms{10 * ms};

double wait_ms(const std::vector<std::uint64_t>& service, const ReplaySetting& setting,
               std::size_t steps = 400) {
  return replay(service, 64, ten_ms, setting, steps).mean_wait_ns / 1e6;
}

// Lognormal service times of mean 1 ms and the given coefficient of variation, by Box and Muller.
std::vector<std::uint64_t> lognormal(double cv, std::size_t count) {
  const double variance = std::log(1 + cv * cv);
  std::vector<std::uint64_t> times;
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = draw(1, Purpose::synthetic, 7, i);
    const double u = (words[0] + 0.5) / 4294967296.0, v = words[1] / 4294967296.0;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    times.push_back(static_cast<std::uint64_t>(
        static_cast<double>(ms) * std::exp(-variance / 2 + std::sqrt(variance) * normal)));
  }
  return times;
}

TEST(Replay, GivesTheTableOfEqualSamples) {
  const std::vector<std::uint64_t> service{ms};
  EXPECT_NEAR(wait_ms(service, {.workers = 2}), 22.0, 1e-9);
  EXPECT_NEAR(wait_ms(service, {.workers = 4}), 6.0, 1e-9);
  EXPECT_NEAR(wait_ms(service, {.workers = 6}), 64.0 / 6 - 10, 0.02);
  EXPECT_EQ(wait_ms(service, {.workers = 7}), 0);
}

TEST(Replay, HidesBurstsBehindADeeperQueue) {
  std::vector<std::uint64_t> service(64 * 16, ms);
  std::fill(service.begin() + 15 * 64, service.begin() + 16 * 64, 4 * ms);
  const auto wait = [&](int workers, int prefetch) {
    const auto steps = static_cast<std::size_t>(16 * 40 + prefetch);
    return wait_ms(service, {.workers = workers, .prefetch = prefetch}, steps);
  };
  EXPECT_NEAR(wait(8, 1), 1.38, 0.02);
  EXPECT_NEAR(wait(8, 2), 0.72, 0.04);  // 0.75 in the long run: 350 steps had 21 bursts, not 22
  EXPECT_LT(wait(8, 4), 0.005);
  // The formula of the mean says that 8 workers never wait: (64 * 19 / 16) / 8 < 10.
  EXPECT_GT(wait(8, 1), 0.1);
}

TEST(Replay, AgreesWithTheFormulaOnRandomTimes) {
  for (const double cv : {0.5, 1.0}) {
    const std::vector<std::uint64_t> service = lognormal(cv, 64 * 400);
    const double work =
        static_cast<double>(std::accumulate(service.begin(), service.end(), std::uint64_t{0})) /
        400e6;
    for (const int prefetch : {2, 8})
      for (const int workers : {2, 4, 6, 7, 8, 10})
        EXPECT_NEAR(wait_ms(service, {.workers = workers, .prefetch = prefetch}),
                    std::max(0.0, work / workers - 10), 0.25)
            << "cv " << cv << ", prefetch " << prefetch << ", workers " << workers;
  }
}

TEST(Replay, SharesSamplesSoThatWaitsAreEven) {
  const auto waits = replay({ms}, 64, {ms}, {.workers = 4, .prefetch = 8}, 12).waits_ns;
  ASSERT_EQ(waits.size(), 12U);
  for (std::size_t i = 1; i < waits.size(); ++i) EXPECT_EQ(waits[i], 15 * ms);
}

TEST(Replay, SlowsWorkersThatHaveNoCore) {
  EXPECT_NEAR(wait_ms({ms}, {.workers = 8, .cores = 4}), 6.0, 1e-9);
  EXPECT_NEAR(wait_ms({ms}, {.workers = 8, .cores = 8}), 0, 1e-9);
}

TEST(Replay, ScalesServiceTimes) {
  EXPECT_NEAR(wait_ms({2 * ms}, {.workers = 4, .stage_scale = 0.5}), 6.0, 1e-9);
}

TEST(Replay, GivesNothingForNothing) {
  EXPECT_TRUE(replay({}, 64, ten_ms, {}, 10).waits_ns.empty());
  EXPECT_TRUE(replay({ms}, 64, {}, {}, 10).waits_ns.empty());
  EXPECT_TRUE(replay({ms}, 0, ten_ms, {}, 10).waits_ns.empty());
  EXPECT_TRUE(replay({ms}, 64, ten_ms, {}, 0).waits_ns.empty());
}

}  // namespace
}  // namespace warpstep::profiler

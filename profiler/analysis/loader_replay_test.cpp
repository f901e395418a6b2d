#include "profiler/analysis/loader_replay.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/core/random.h"

namespace warpstep::profiler {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr double ms = 1e6;
const std::vector<double> ten_ms{10 * ms};
const std::vector<SampleWork> read_1_ms{{.latency_ns = ms}}, make_1_ms{{.cpu_ns = ms}};

double wait_ms(std::span<const SampleWork> samples, ReplaySetting setting,
               std::size_t steps = 400) {
  setting.batch = 64;
  return replay(samples, ten_ms, setting, steps).wait_ns / ms;
}

// Reads of lognormal times of mean 1 ms and the given coefficient of variation, by Box and Muller.
std::vector<SampleWork> lognormal(double cv, std::size_t count) {
  const double variance = std::log(1 + cv * cv);
  std::vector<SampleWork> samples;
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = draw(1, Purpose::synthetic, 7, i);
    const double u = (words[0] + 0.5) / 4294967296.0, v = words[1] / 4294967296.0;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
    samples.push_back({.latency_ns = ms * std::exp(-variance / 2 + std::sqrt(variance) * normal)});
  }
  return samples;
}

TEST(LoaderReplay, GivesTheTableOfEqualSamples) {
  EXPECT_NEAR(wait_ms(read_1_ms, {.workers = 2}), 22.0, 1e-6);
  EXPECT_NEAR(wait_ms(read_1_ms, {.workers = 4}), 6.0, 1e-6);
  EXPECT_NEAR(wait_ms(read_1_ms, {.workers = 6}), 64.0 / 6 - 10, 0.02);
  EXPECT_EQ(wait_ms(read_1_ms, {.workers = 7}), 0);
}

TEST(LoaderReplay, HidesBurstsBehindADeeperQueue) {
  std::vector<SampleWork> samples(std::size_t{64} * 16, read_1_ms[0]);
  for (std::size_t i = samples.size() - 64; i < samples.size(); ++i) samples[i].latency_ns = 4 * ms;
  const auto wait = [&](int workers, int prefetch) {
    const auto steps = static_cast<std::size_t>(16 * 40 + prefetch);
    return wait_ms(samples, {.workers = workers, .prefetch = prefetch}, steps);
  };
  EXPECT_NEAR(wait(8, 1), 1.38, 0.02);
  EXPECT_NEAR(wait(8, 2), 0.72, 0.04);  // 0.75 in the long run: 350 steps had 21 bursts, not 22
  EXPECT_LT(wait(8, 4), 0.005);
  // The formula of the mean says that 8 workers never wait: (64 * 19 / 16) / 8 < 10.
  EXPECT_GT(wait(8, 1), 0.1);
}

TEST(LoaderReplay, AgreesWithTheFormulaOnRandomTimes) {
  for (const double cv : {0.5, 1.0}) {
    const std::vector<SampleWork> samples = lognormal(cv, std::size_t{64} * 400);
    double work = 0;
    for (const SampleWork& sample : samples) work += sample.latency_ns / 400 / ms;
    for (const int prefetch : {2, 8})
      for (const int workers : {2, 4, 6, 7, 8, 10})
        EXPECT_NEAR(wait_ms(samples, {.workers = workers, .prefetch = prefetch}),
                    std::max(0.0, work / workers - 10), 0.25)
            << "cv " << cv << ", prefetch " << prefetch << ", workers " << workers;
  }
}

TEST(LoaderReplay, SharesSamplesSoThatWaitsAreEven) {
  const std::vector<double> one_ms{ms};
  const auto waits =
      replay(read_1_ms, one_ms, {.workers = 4, .prefetch = 8, .batch = 64}, 12).waits_ns;
  ASSERT_EQ(waits.size(), 12U);
  for (std::size_t i = 1; i < waits.size(); ++i)
    EXPECT_NEAR(static_cast<double>(waits[i]), 15 * ms, 2);
}

TEST(LoaderReplay, WorkersShareCores) {
  EXPECT_NEAR(wait_ms(make_1_ms, {.workers = 8, .cores = 4}), 6.0, 1e-6);
  EXPECT_NEAR(wait_ms(make_1_ms, {.workers = 8, .cores = 8}), 0, 1e-6);
  EXPECT_NEAR(wait_ms(read_1_ms, {.workers = 8, .cores = 1}), 0, 1e-6);  // reads need no core
}

TEST(LoaderReplay, ReadersShareABandwidth) {
  // 64 samples of a million bytes at 1 ns a byte: 64 ms, whatever the number of readers.
  const std::vector<SampleWork> bytes{{.bytes = 1e6}};
  for (const int workers : {1, 2, 16})
    EXPECT_NEAR(wait_ms(bytes, {.workers = workers, .ns_per_byte = 1}), 54, 0.1) << workers;
  EXPECT_EQ(wait_ms(bytes, {.workers = 1}), 0);  // no limit
}

TEST(LoaderReplay, ConservesCores) {
  // 4 threads of kernels for 10 ms and 64 ms of making, on 4 cores: (4 * 10 + 64) / 4 at best.
  for (const double weight : {0.1, 0.33, 1.0})
    for (const int workers : {1, 2, 4, 8}) {
      const ReplayResult result = replay(make_1_ms, ten_ms,
                                         {.workers = workers,
                                          .batch = 64,
                                          .cores = 4,
                                          .kernel_threads = 4,
                                          .worker_weight = weight},
                                         200);
      EXPECT_GE(result.step_ns, 26 * ms * 0.999) << weight << " " << workers;
      if (workers >= 4) {
        EXPECT_NEAR(result.step_ns, 26 * ms, 0.5 * ms) << weight << " " << workers;
      }
    }
}

TEST(LoaderReplay, GivesKernelsTheirWeightOverWorkers) {
  // Both want the only core: of a step of 10 / 0.8 ms the worker gets 2.5 of its 3 ms, and then has
  // the core to itself.
  const ReplayResult result = replay(
      make_1_ms, ten_ms,
      {.workers = 1, .batch = 3, .cores = 1, .kernel_threads = 1, .worker_weight = 0.25}, 200);
  EXPECT_NEAR(result.step_ns, 13 * ms, 0.05 * ms);
  EXPECT_NEAR(result.wait_ns, 0.5 * ms, 0.05 * ms);
}

TEST(LoaderReplay, GivesOtherProgramsTheirShare) {
  const ReplayResult alone =
      replay(make_1_ms, ten_ms, {.workers = 1, .batch = 64, .cores = 1}, 100);
  const ReplayResult beside =
      replay(make_1_ms, ten_ms, {.workers = 1, .batch = 64, .cores = 1, .others = 1}, 100);
  EXPECT_NEAR(alone.step_ns, 64 * ms, ms);
  EXPECT_NEAR(beside.step_ns, 128 * ms, ms);
}

TEST(LoaderReplay, GivesASlowWorkerFewerSamples) {
  // Two workers, one of them 3 times as slow: 4 samples in 3 ms.
  const ReplayResult result =
      replay(read_1_ms, ten_ms, {.workers = 2, .batch = 64, .slowness = {1, 3}}, 100);
  EXPECT_NEAR(result.step_ns, 48 * ms, ms);
  EXPECT_NEAR(result.busy_ns, 96 * ms, 2 * ms);
}

TEST(LoaderReplay, MakesBatchesAheadInPauses) {
  // A batch takes 64 ms and a step 10: 54 ms of waiting. A pause of 128 ms before each fourth step
  // has room for what is left of a batch, 54, and for another one; then the queue is full.
  const std::vector<double> pauses{128 * ms, 0, 0, 0};
  const ReplaySetting setting{.workers = 1, .prefetch = 2, .batch = 64};
  const ReplayResult without = replay(make_1_ms, ten_ms, setting, 400),
                     with = replay(make_1_ms, ten_ms, setting, 400, pauses);
  EXPECT_NEAR(without.wait_ns, 54 * ms, 0.1 * ms);
  EXPECT_NEAR(with.wait_ns, (4 * 64 - 4 * 10 - (54 + 64)) / 4.0 * ms, 0.5 * ms);
  EXPECT_NEAR(with.step_ns, with.wait_ns + 10 * ms, 0.5 * ms);  // without the pauses
}

TEST(LoaderReplay, GivesNothingForNothing) {
  EXPECT_THAT(replay({}, ten_ms, {}, 10).waits_ns, IsEmpty());
  EXPECT_THAT(replay(read_1_ms, {}, {}, 10).waits_ns, IsEmpty());
  EXPECT_THAT(replay(read_1_ms, ten_ms, {.batch = 0}, 10).waits_ns, IsEmpty());
  EXPECT_THAT(replay(read_1_ms, ten_ms, {}, 0).waits_ns, IsEmpty());
  // No work at all: steps follow each other.
  const std::vector<SampleWork> nothing(1);
  EXPECT_THAT(replay(nothing, ten_ms, {.batch = 4}, 10).waits_ns, Each(0U));
}

}  // namespace
}  // namespace warpstep::profiler

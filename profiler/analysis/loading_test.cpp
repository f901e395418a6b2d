#include <gmock/gmock.h>

#include <numeric>

#include "profiler/analysis/loading.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using testing::SessionBuilder;

TEST(LoaderView, AddsUpStagesByWorker) {
  const LoaderView view =
      loader_view(testing::loader_session({.workers = 2,
                                           .batch = 4,
                                           .steps = 6,
                                           .step_us = 100,
                                           .stages = {{"read", 10}, {"decode", 60}, {"copy", 5}}})
                      .build());
  EXPECT_TRUE(view.has_spans);
  EXPECT_EQ(view.workers, 2);
  EXPECT_EQ(view.prefetch, 3);
  EXPECT_EQ(view.cores, 16);
  EXPECT_EQ(view.batch, 4);
  EXPECT_THAT(view.stages, ElementsAre("read", "decode", "copy"));
  EXPECT_THAT(view.stage_ns, ElementsAre(40'000, 240'000, 20'000));
  EXPECT_DOUBLE_EQ(view.work_ns, 300'000);
  EXPECT_THAT(view.service_ns, ::testing::SizeIs(24));
  EXPECT_THAT(view.service_ns, ::testing::Each(75'000));
  ASSERT_EQ(view.by_worker.size(), 2U);
  EXPECT_EQ(view.by_worker[1].thread, "loader 1");
  EXPECT_EQ(view.by_worker[1].samples, 12U);
  EXPECT_THAT(view.by_worker[1].stage_ns, ElementsAre(120'000, 720'000, 60'000));
  // 6 batches of 150 us each on two workers, and the last step: 1000 us, 900 of them at work.
  EXPECT_NEAR(view.by_worker[1].busy, 0.9, 1e-9);
  EXPECT_NEAR(view.step_ns, 100'000, 1e-6);
  EXPECT_NEAR(view.wait_ns, (150'000 + 5 * 50'000) / 6.0, 1);
  EXPECT_EQ(view.queue.size(), 6U);
  EXPECT_DOUBLE_EQ(view.queue_depth, 0);  // every step waits
}

TEST(LoaderView, OrdersStagesAsSamplesGoThroughThem) {
  const LoaderView view = loader_view(
      testing::loader_session(
          {.workers = 1,
           .steps = 4,
           .stages = {{"copy", 1}, {"pixels", 1}, {"flip", 1}, {"decode", 1}, {"read", 1}}})
          .build());
  EXPECT_THAT(view.stages, ElementsAre("read", "decode", "flip", "pixels", "copy"));
}

TEST(LoaderView, CountsWhatLiesInCompleteWindowsAlone) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0");
  for (int i = 0; i < 4; ++i) {
    const double at = 100.0 * i;
    builder.span(Kind::sample, "sample", at, at + 80, 1, static_cast<std::uint64_t>(i));
    builder.span(Kind::stage, "decode", at, at + 80, 1);
    builder.span(Kind::idle, "idle", at + 80, at + 100, 1);
    builder.step(static_cast<std::uint64_t>(i + 1), at, at + 100, 50, i == 0 ? 40 : 10);
  }
  builder.window(2, 3, 100, 290);
  builder.window(4, 4, 300, 400);
  builder.raw().windows[1].complete = 0;
  builder.raw().loader = {{"batch", 1}};
  const LoaderView view = loader_view(builder.build());
  ASSERT_EQ(view.by_worker.size(), 1U);
  EXPECT_EQ(view.by_worker[0].samples, 2U);
  EXPECT_EQ(view.by_worker[0].idle_ns, 30'000U);  // 20, and 10 of the other one
  EXPECT_DOUBLE_EQ(view.wait_ns, 10'000);
  EXPECT_DOUBLE_EQ(view.step_ns, 90'000);
  EXPECT_NEAR(view.by_worker[0].busy, 160.0 / 190, 1e-9);
}

TEST(LoaderView, PutsSamplesInTheOrderOfTicketsFromAWholeBatchOn) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0").thread(5001, "loader 1");
  const auto sample = [&](double at, double us, std::uint32_t thread, std::uint64_t ticket) {
    builder.span(Kind::sample, "sample", at, at + us, thread, ticket);
  };
  sample(0, 1, 1, 3);
  sample(10, 2, 2, 4);
  sample(20, 4, 2, 7);
  sample(30, 3, 1, 5);
  sample(40, 5, 1, 6);
  sample(50, 6, 2, 8);
  builder.step(1, 0, 100).window(1, 1, 0, 100);
  builder.raw().loader = {{"batch", 2}};
  const LoaderView view = loader_view(builder.build());
  EXPECT_THAT(view.service_ns, ElementsAre(2000, 3000, 5000, 4000, 6000));
}

TEST(LoaderView, WorksFromCountersWithoutSpans) {
  SessionBuilder builder;
  builder.step(1, 0, 5000, 100, 4000).step(2, 5000, 6000, 100, 300).step(3, 6000, 7000, 100, 500);
  builder.raw().loader = {
      {"active", 2},
      {"prefetch", 4},
      {"batch", 128},
      {"batches", 10},
      {"cpu_ns", 4e6},
      {"mean_ready", 1.5},
      {"stages_ns", {{"wait", 99e6}, {"decode", 4e6}, {"read", 1e6}, {"copy", 0}}}};
  const LoaderView view = loader_view(builder.build());
  EXPECT_FALSE(view.has_spans);
  EXPECT_EQ(view.workers, 2);
  EXPECT_EQ(view.prefetch, 4);
  EXPECT_THAT(view.stages, ElementsAre("read", "decode", "copy"));
  EXPECT_THAT(view.stage_ns, ElementsAre(1e5, 4e5, 0));
  EXPECT_DOUBLE_EQ(view.work_ns, 5e5);
  EXPECT_DOUBLE_EQ(view.wait_ns, 400'000);  // the first step is not counted
  EXPECT_DOUBLE_EQ(view.step_ns, 600'000);
  EXPECT_DOUBLE_EQ(view.queue_depth, 1.5);
  EXPECT_DOUBLE_EQ(view.cpu_share, 0.8);
}

TEST(LoaderView, ToleratesWhatIsMissingOrOdd) {
  const LoaderView nothing = loader_view(Session{});
  EXPECT_EQ(nothing.work_ns, 0);
  EXPECT_EQ(nothing.step_ns, 0);
  Session session;
  session.loader = {{"workers", "many"}, {"batch", -3},    {"batches", 1},
                    {"prefetch", 1e30},  {"cores", "all"}, {"stages_ns", {{"decode", "long"}}}};
  session.stamp = Json::array({1, 2});
  const LoaderView odd = loader_view(session);
  EXPECT_EQ(odd.workers, 0);
  EXPECT_EQ(odd.batch, 0);
  EXPECT_TRUE(odd.stages.empty());
}

TEST(LoaderView, SharesTheCpuTimeOfAClaimAmongItsSamples) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0");
  const auto sample = [&](double at, double read, double decode, std::uint64_t ticket) {
    builder.span(Kind::sample, "sample", at, at + read + decode, 1, ticket);
    builder.span(Kind::stage, "read", at, at + read, 1, 4000);
    builder.span(Kind::stage, "decode", at + read, at + read + decode, 1);
  };
  sample(0, 100, 20, 0);
  sample(120, 200, 20, 1);
  builder.span(Kind::counter, "worker cpu ns", 340, 340, 1, 70'000);  // of 340 us
  sample(400, 10, 90, 2);
  builder.span(Kind::counter, "worker cpu ns", 500, 500, 1, 60'000);  // 10 us read, 30 us preempted
  builder.step(1, 0, 1000).window(1, 1, 0, 1000);
  builder.raw().loader = {{"batch", 1}, {"encoding", "png"}};
  const LoaderView view = loader_view(builder.build());
  ASSERT_EQ(view.samples.size(), 3U);
  EXPECT_TRUE(view.knows_cpu);
  EXPECT_NEAR(view.samples[0].blocked_ns, 90'000, 1);  // 270 us off the core, by time in reads
  EXPECT_NEAR(view.samples[1].blocked_ns, 180'000, 1);
  EXPECT_NEAR(view.samples[1].cpu_ns, 40'000, 1);
  EXPECT_NEAR(view.samples[2].blocked_ns, 10'000, 1);
  EXPECT_NEAR(view.samples[2].delay_ns, 30'000, 1);
  EXPECT_NEAR(view.samples[2].wall_ns(), 100'000, 1);
  EXPECT_EQ(view.samples[1].bytes, 4000);
}

TEST(LoaderView, TakesDelaysOfEachClaimWhereTheLoaderRecordedThem) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0");
  for (int i = 0; i < 8; ++i) {
    // One read of 10 ms that sleeps, one that the kernels' threads take the core from, six short
    // ones.
    const double at = 20'000.0 * i, read = i == 2 ? 10'000 : i == 5 ? 3'000 : 40;
    builder.span(Kind::sample, "sample", at, at + read + 10, 1, static_cast<std::uint64_t>(i));
    builder.span(Kind::stage, "read", at, at + read, 1, 4000);
    builder.span(Kind::counter, "worker cpu ns", at + read + 10, at + read + 10, 1, 20'000);
    if (i == 2)
      builder.span(Kind::counter, "worker delay ns", at + read + 10, at + read + 10, 1, 100'000);
    if (i == 5)
      builder.span(Kind::counter, "worker delay ns", at + read + 10, at + read + 10, 1, 2'990'000);
  }
  // All delays of the thread, most of them when it woke up for the next batch.
  builder.step(1, 0, 160'000).window(1, 1, 0, 160'000).sample("loader 0 run delay %", 160'000, 30);
  builder.raw().loader = {{"batch", 1}, {"encoding", "png"}};
  const LoaderView view = loader_view(builder.build());
  ASSERT_EQ(view.samples.size(), 8U);
  EXPECT_NEAR(view.samples[2].blocked_ns, 9'890'000, 1);
  EXPECT_NEAR(view.samples[2].delay_ns, 100'000, 1);
  EXPECT_NEAR(view.samples[5].blocked_ns, 0, 1);
  EXPECT_NEAR(view.samples[5].delay_ns, 2'990'000, 1);
  EXPECT_NEAR(view.samples[0].blocked_ns, 30'000, 1);
  EXPECT_GT(view.service.beyond_share, 0.9);  // the slow read is a slow sample
}

TEST(LoaderView, TellsReadingFromSleeping) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0");
  for (int i = 0; i < 4; ++i) {
    const double at = 200.0 * i;
    builder.span(Kind::sample, "sample", at, at + 100, 1, static_cast<std::uint64_t>(i));
    builder.span(Kind::stage, "read", at, at + 10, 1, 4000);
    builder.span(Kind::stage, "decode", at + 10, at + 30, 1);
    builder.span(Kind::stage, "blur", at + 30, at + 100, 1);
    builder.span(Kind::counter, "worker cpu ns", at + 100, at + 100, 1, 18'000);
  }
  builder.step(1, 0, 1000).window(1, 1, 0, 1000).sample("loader 0 run delay %", 1000, 0);
  builder.raw().loader = {{"batch", 1}, {"encoding", "png"}};
  LoaderView view = loader_view(builder.build());
  EXPECT_NEAR(view.blocked_ns, 10'000, 1);
  EXPECT_NEAR(view.asleep_ns, 72'000, 1);  // outside of reads
  EXPECT_NEAR(view.cpu_ns, 18'000, 1);
  EXPECT_NEAR(view.samples[0].wall_ns(), 100'000, 1);
  EXPECT_NEAR(asleep_share_of(view, "blur"), 7.0 / 9, 1e-9);
  EXPECT_EQ(asleep_share_of(view, "read"), 0);
  EXPECT_NEAR(cpu_share_of(view, "blur"), 7.0 / 9, 1e-9);
  builder.raw().loader["encoding"] = "pixels";  // the pages of a mapped file are read by decode
  view = loader_view(builder.build());
  EXPECT_NEAR(view.blocked_ns, 10'000 + 72'000 * 2.0 / 9, 1);
  builder.raw().stamp["options"] = {{"data_io", "pread"}};
  EXPECT_NEAR(loader_view(builder.build()).blocked_ns, 10'000, 1);
}

TEST(LoaderView, ComparesWorkers) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0").thread(5001, "loader 1");
  for (int i = 0; i < 12; ++i) {
    const double at = 100.0 * i;
    builder.span(Kind::sample, "sample", at, at + 10, 1, static_cast<std::uint64_t>(2 * i));
    builder.span(Kind::sample, "sample", at, at + (i == 5 ? 99 : 40), 2,
                 static_cast<std::uint64_t>(2 * i + 1));
  }
  builder.step(1, 0, 2000).window(1, 1, 0, 2000);
  builder.raw().loader = {{"batch", 1}};
  const LoaderView view = loader_view(builder.build());
  ASSERT_EQ(view.by_worker.size(), 2U);
  EXPECT_DOUBLE_EQ(view.by_worker[0].slowness, 1);
  EXPECT_DOUBLE_EQ(view.by_worker[1].slowness, 4);
}

// It waits for a lock, and gets it at once in one of three samples.
TEST(LoaderView, AWorkerThatWaitsForOthersIsNotSlow) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0").thread(5001, "loader 1");
  for (int i = 0; i < 30; ++i) {
    const double at = 100.0 * i;
    builder.span(Kind::sample, "sample", at, at + 10, 1, static_cast<std::uint64_t>(2 * i));
    builder.span(Kind::sample, "sample", at, at + (i % 3 == 0 ? 10 : 70), 2,
                 static_cast<std::uint64_t>(2 * i + 1));
  }
  builder.step(1, 0, 4000).window(1, 1, 0, 4000);
  builder.raw().loader = {{"batch", 1}};
  EXPECT_DOUBLE_EQ(loader_view(builder.build()).by_worker[1].slowness, 1);
}

TEST(Concentration, FindsTheFewPartsThatHaveMost) {
  std::vector<double> parts(100, 1.0);
  parts[7] = 200;
  parts[20] = 300;
  const Concentration few = concentration(parts);
  EXPECT_DOUBLE_EQ(few.share_of_all, 0.02);
  EXPECT_NEAR(few.share_of_sum, 500.0 / 598, 1e-9);
  EXPECT_DOUBLE_EQ(concentration(std::vector<double>(10, 1.0)).share_of_all, 0.7);
  EXPECT_DOUBLE_EQ(concentration({}).share_of_all, 1);
  EXPECT_DOUBLE_EQ(concentration({0, 0}).share_of_all, 1);
}

TEST(StallPeriod, IsTheSmallestThatExplainsTheWaits) {
  const auto period = [](const std::vector<std::uint64_t>& waits) {
    return stall_period(waits, 1000);
  };
  std::vector<std::uint64_t> fourth, sixteenth(64, 0), noisy(40, 3), even(40, 50);
  for (int i = 0; i < 40; ++i) fourth.push_back(i % 4 == 3 ? 60'000 : 0);
  for (std::size_t i = 5; i < 64; i += 16) sixteenth[i] = 5000;
  for (std::size_t i = 0; i < 40; i += 8) noisy[i] = 900;
  EXPECT_EQ(period(fourth), 4);
  EXPECT_EQ(period(sixteenth), 16);
  EXPECT_EQ(period(noisy), 8);
  EXPECT_EQ(period(even), 0);
  EXPECT_EQ(period({}), 0);
  EXPECT_EQ(period({0, 0, 900, 0, 0}), 0);  // once is not again
  std::vector<std::uint64_t> odd(40, 0);
  for (const std::size_t i : {3U, 8U, 9U, 21U, 34U}) odd[i] = 900;
  EXPECT_EQ(period(odd), 0);
}

}  // namespace
}  // namespace warpstep::profiler

#include <gmock/gmock.h>

#include <numeric>

#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::LoaderCase;
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
  EXPECT_DOUBLE_EQ(view.queue_depth, 1);
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

TEST(StallPeriod, IsTheSmallestThatExplainsTheWaits) {
  const auto period = [](std::vector<std::uint64_t> waits) { return stall_period(waits, 1000); };
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

using ::testing::HasSubstr;
using testing::LoaderCase;
using ::testing::Not;
using testing::SessionBuilder;

Stall diagnosed(const Session& session) {
  return diagnose(loader_view(session), session);
}
Stall diagnosed(const LoaderCase& c) {
  return diagnosed(testing::loader_session(c).build());
}

// The times that every step records, without spans: S 28.7 ms, W 164 ms on 4 workers.
Session example() {
  SessionBuilder builder;
  builder.gpu();
  for (int i = 0; i < 10; ++i)
    builder.step(static_cast<std::uint64_t>(411 + i), 41'000.0 * i, 41'000.0 * (i + 1), 28'000,
                 12'300);
  builder.raw().loader = {
      {"active", 4},  {"prefetch", 3},
      {"batch", 128}, {"batches", 1},
      {"cores", 16},  {"stages_ns", {{"read", 20e6}, {"decode", 116.44e6}, {"copy", 27.56e6}}}};
  Session session = builder.build();
  return session;
}

TEST(Stall, SaysItInOneLine) {
  EXPECT_EQ(
      diagnosed(example()).text,
      "steps 412-420: waited 12.3 of 41.0 ms (30.0 %) for the loader; decode is 71.0 % of 164 ms "
      "worker time per batch, CPU-bound; 6 workers would hide it (step 28.7 ms, 1.43x); staying at "
      "4 workers, decode must get 1.73x faster.");
}

TEST(Stall, PredictsWhatWasMeasured) {
  const Stall stall = diagnosed(LoaderCase{});
  EXPECT_TRUE(stall.is_stalled);
  EXPECT_NEAR(stall.predicted_wait_ns, 4.51e6, 0.05e6);        // 2 * 16.605 - 28.7 ms
  EXPECT_NEAR(stall.wait_ns, stall.predicted_wait_ns, 1.3e6);  // the first wait is a whole batch
  EXPECT_EQ(stall.stage, "decode");
  EXPECT_NEAR(stall.stage_share, 14'555.0 / 16'605, 1e-6);
}

TEST(Stall, FindsTheWorkersThatHideIt) {
  for (const int workers : {1, 2, 3, 4}) {
    const Stall stall = diagnosed({.workers = workers, .batch = 16, .steps = 40});
    // 16 samples of 16.605 ms: 266 ms of work a batch; 9 workers leave 4 of them with two samples.
    EXPECT_TRUE(stall.is_stalled) << workers;
    EXPECT_GE(stall.workers_needed, 10) << workers;
    EXPECT_LE(stall.workers_needed, 11) << workers;
    EXPECT_NEAR(stall.step_with_them_ns, 28.7e6, 0.6e6);
    EXPECT_NEAR(stall.speedup, stall.step_ns / stall.step_with_them_ns, 1e-9);
    EXPECT_EQ(stall.wait_by_workers_ns.size(), 15U);  // a core is left to the trainer
  }
}

TEST(Stall, IsNoneWhereTheLoaderKeepsUp) {
  const Stall stall = diagnosed({.workers = 8, .steps = 200, .step_us = 40'000});
  EXPECT_FALSE(stall.is_stalled);
  EXPECT_THAT(stall.text, HasSubstr("loading overlaps with computing"));
  EXPECT_EQ(stall.stage_speedup_needed, 0);
}

TEST(Stall, SaysTheStageSpeedUpThatSuffices) {
  // W 4 x 12 ms on 2 workers: 24 ms for a step of 20: of 40 ms of decoding 8 must go.
  const Stall stall = diagnosed({.workers = 2,
                                 .batch = 4,
                                 .steps = 60,
                                 .step_us = 20'000,
                                 .stages = {{"read", 2'000}, {"decode", 10'000}}});
  EXPECT_NEAR(stall.stage_speedup_needed, 40.0 / 32, 0.01);
  EXPECT_THAT(stall.text, HasSubstr("staying at 2 workers, decode must get 1.25x faster"));
}

TEST(Stall, NoStageSpeedUpSufficesWhenTheRestIsTooMuch) {
  const Stall stall = diagnosed({.workers = 1,
                                 .batch = 4,
                                 .steps = 40,
                                 .step_us = 20'000,
                                 .stages = {{"read", 6'000}, {"decode", 7'000}}});
  EXPECT_EQ(stall.stage_speedup_needed, 0);
  EXPECT_THAT(stall.text, Not(HasSubstr("faster")));
}

TEST(Stall, OnBusyCoresNoWorkersHideIt) {
  // Both of two cores compute 20 ms per step; loading takes 48 ms per batch on one of them.
  const Stall stall = diagnosed({.workers = 1,
                                 .cores = 2,
                                 .kernel_threads = 2,
                                 .batch = 4,
                                 .steps = 40,
                                 .gpu = false,
                                 .step_us = 20'000,
                                 .stages = {{"read", 2'000}, {"decode", 10'000}}});
  EXPECT_EQ(stall.workers_needed, 0);
  EXPECT_EQ(stall.best_workers, 2);  // the waiting trainer's cores are free
  EXPECT_LT(stall.step_with_best_ns, 0.9 * stall.step_ns);
  EXPECT_THAT(stall.text, HasSubstr("no number of workers hides it on 2 cores, but 2 workers"));
}

TEST(Stall, OnFreeCoresOfAHostWorkersHideIt) {
  const Stall stall = diagnosed({.workers = 1,
                                 .cores = 8,
                                 .kernel_threads = 2,
                                 .batch = 4,
                                 .steps = 40,
                                 .gpu = false,
                                 .step_us = 20'000,
                                 .stages = {{"read", 2'000}, {"decode", 10'000}}});
  EXPECT_EQ(stall.workers_needed, 3);  // 48 ms of work in 20
}

TEST(Stall, WorkersThatWaitForADiskMayBeMoreThanCores) {
  SessionBuilder builder = testing::loader_session({.workers = 2,
                                                    .cores = 2,
                                                    .batch = 16,
                                                    .steps = 40,
                                                    .step_us = 20'000,
                                                    .stages = {{"read", 9'000}, {"decode", 500}}});
  const Session computing = builder.build();
  EXPECT_EQ(diagnosed(computing).workers_needed, 0);
  EXPECT_EQ(diagnosed(computing).bound, Bound::unknown);
  builder.sample("disk busy %", 1000, 80);
  const Stall stall = diagnosed(builder.build());
  EXPECT_EQ(stall.bound, Bound::io);
  EXPECT_GE(stall.workers_needed, 8);
  EXPECT_THAT(stall.text, HasSubstr("I/O-bound"));
}

TEST(Stall, TellsTheDiskFromTheCpuByTheProcess) {
  SessionBuilder builder = testing::loader_session({});
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::cpu);
  builder.sample("process cpu %", 1000, 390);
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::cpu);
  builder.raw().samples.clear();
  builder.sample("process cpu %", 1000, 150);  // of 4 workers that are always busy
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::io);
  builder.raw().loader["cpu_ns"] = 95;
  builder.raw().loader["stages_ns"] = {{"decode", 100}};
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::cpu);
  builder.raw().loader["cpu_ns"] = 30;
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::io);
}

TEST(Stall, SeesBurstsThatADeeperQueueHides) {
  const LoaderCase bursts{.workers = 8,
                          .prefetch = 2,
                          .batch = 64,
                          .steps = 96,
                          .step_us = 10'000,
                          .stages = {{"decode", 1'000}},
                          .scale = [](int batch) { return batch % 16 == 7 ? 4.0 : 1.0; }};
  const Session session = testing::loader_session(bursts).build();
  const LoaderView view = loader_view(session);
  EXPECT_EQ(view.stall_period, 16);
  const Stall stall = diagnose(view, session);
  EXPECT_TRUE(stall.is_stalled);
  EXPECT_NEAR(stall.predicted_wait_ns, 1.38e6, 0.1e6);
  EXPECT_EQ(stall.prefetch_needed, 4);  // 2 of 22 ms are left, once in 16 steps
  EXPECT_THAT(stall.text, HasSubstr("all waiting is in one step of 16"));
  EXPECT_THAT(stall.text, HasSubstr("a prefetch of 4 hides it"));
}

TEST(Stall, SaysSoWhenTheReplayIsOff) {
  Session session = example();
  session.loader["stages_ns"]["decode"] = 20e6;
  EXPECT_THAT(diagnosed(session).text, HasSubstr("model and measurement disagree"));
}

TEST(Stall, CopesWithNoLoaderAndNoSteps) {
  EXPECT_THAT(diagnosed(Session{}).text, HasSubstr("too few steps"));
  SessionBuilder builder;
  builder.step(1, 0, 100).step(2, 100, 200, 10, 50);
  const Stall stall = diagnosed(builder.build());
  EXPECT_TRUE(stall.is_stalled);
  EXPECT_THAT(stall.text, HasSubstr("not recorded"));
}

TEST(LoaderModel, ConservesTheCoresOfAHost) {
  // Everything on C cores, kernels with all of them: no setting beats (C S + W) / C.
  const Session session = testing::loader_session({.workers = 1,
                                                   .cores = 4,
                                                   .kernel_threads = 4,
                                                   .batch = 32,
                                                   .steps = 40,
                                                   .gpu = false,
                                                   .step_us = 10'000,
                                                   .stages = {{"decode", 1'000}}})
                              .build();
  const LoaderView view = loader_view(session);
  const LoaderModel model(view, session, false);
  const double limit = model.free_step_ns() + model.work_ns() / 4;
  double before = 1e18;
  for (int k = 1; k <= 4; ++k) {
    const double step = model.predict({.workers = k}).step_ns;
    EXPECT_GE(step, 0.99 * limit) << k;
    EXPECT_LE(step, before * 1.001) << k;
    before = step;
  }
  EXPECT_NEAR(before, limit, 0.03 * limit);
  // The setting that ran is predicted as it was measured.
  EXPECT_NEAR(model.predict({}).step_ns, model.measured_step_ns(), 0.02 * 32e6);
}

}  // namespace
}  // namespace warpstep::profiler

#include "profiler/analysis/stall.h"

#include <gmock/gmock.h>

#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

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

// Batches of 4 samples of 12 ms each, for steps of 20 ms on a GPU.
LoaderCase slow_loader(int workers) {
  return {.workers = workers,
          .batch = 4,
          .steps = 40,
          .step_us = 20'000,
          .stages = {{"read", 2'000}, {"decode", 10'000}}};
}

// The same with one worker beside two threads of kernels.
LoaderCase slow_loader_on_host(int cores) {
  LoaderCase c = slow_loader(1);
  c.gpu = false;
  c.cores = cores;
  c.kernel_threads = 2;
  return c;
}

// The times that every step records, without spans: S 28.7 ms, W 164 ms on 4 workers.
Session example() {
  SessionBuilder builder;
  builder.gpu();
  for (int i = 0; i < 10; ++i)
    builder.step(static_cast<std::uint64_t>(411 + i), 41'000.0 * i, 41'000.0 * (i + 1), 28'000,
                 12'300);
  builder.raw().loader = {
      {"active", 4},    {"prefetch", 3},
      {"batch", 128},   {"batches", 1},
      {"cores", 16},    {"stages_ns", {{"read", 20e6}, {"decode", 116.44e6}, {"copy", 27.56e6}}},
      {"cpu_ns", 164e6}};
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
    EXPECT_NEAR(stall.step_with_them_ns, 28.7e6, 2.9e6);  // the first wait is a whole batch
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
  LoaderCase c = slow_loader(2);
  c.steps = 60;
  const Stall stall = diagnosed(c);
  EXPECT_NEAR(stall.stage_speedup_needed, 40.0 / 32, 0.01);
  EXPECT_THAT(stall.text, HasSubstr("staying at 2 workers, decode must get 1.25x faster"));
}

TEST(Stall, NoStageSpeedUpSufficesWhenTheRestIsTooMuch) {
  LoaderCase c = slow_loader(1);
  c.stages = {{"read", 6'000}, {"decode", 7'000}};
  const Stall stall = diagnosed(c);
  EXPECT_EQ(stall.stage_speedup_needed, 0);
  EXPECT_THAT(stall.text, Not(HasSubstr("faster")));
}

TEST(Stall, OnBusyCoresNoWorkersHideIt) {
  // Both of two cores compute 20 ms per step; loading takes 48 ms per batch on one of them.
  const Stall stall = diagnosed(slow_loader_on_host(2));
  EXPECT_EQ(stall.workers_needed, 0);
  EXPECT_EQ(stall.best_workers, 2);  // the waiting trainer's cores are free
  EXPECT_LT(stall.step_with_best_ns, 0.9 * stall.step_ns);
  EXPECT_THAT(stall.text, HasSubstr("no number of workers hides it on 2 cores, but 2 workers"));
}

TEST(Stall, OnFreeCoresOfAHostWorkersHideIt) {
  const Stall stall = diagnosed(slow_loader_on_host(8));
  EXPECT_EQ(stall.workers_needed, 3);  // 48 ms of work in 20
}

TEST(Stall, WorkersThatWaitForADiskMayBeMoreThanCores) {
  SessionBuilder builder = testing::loader_session({.workers = 2,
                                                    .cores = 2,
                                                    .batch = 16,
                                                    .steps = 40,
                                                    .step_us = 20'000,
                                                    .stages = {{"read", 9'000}, {"decode", 200}}});
  const Session computing = builder.build();
  EXPECT_EQ(diagnosed(computing).workers_needed, 0);
  EXPECT_EQ(diagnosed(computing).bound, Bound::unknown);
  builder.sample("disk busy %", 1000, 80);
  const Stall stall = diagnosed(builder.build());
  EXPECT_EQ(stall.bound, Bound::io);
  EXPECT_GE(stall.workers_needed, 8);
  EXPECT_THAT(stall.text, HasSubstr("I/O-bound"));
}

TEST(Stall, LooksAsFarAsAMachineHasCores) {
  // 8 samples of 150 ms in a step of 10 ms: 120 workers.
  const Stall stall = diagnosed({.workers = 100,
                                 .prefetch = 32,
                                 .cores = 256,
                                 .batch = 8,
                                 .steps = 96,
                                 .step_us = 10'000,
                                 .stages = {{"decode", 150'000}}});
  EXPECT_GE(stall.workers_needed, 110);
  EXPECT_LE(stall.workers_needed, 140);
  EXPECT_THAT(stall.text, Not(HasSubstr("would not help")));
  EXPECT_EQ(stall.wait_by_workers_ns.size(), 64U);
}

TEST(Stall, OfALargeBatchIsThatOfASmallOneWithAsMuchWork) {
  const auto with = [](int batch, double us) {
    return diagnosed({.workers = 2,
                      .cores = 8,
                      .batch = batch,
                      .steps = 10,
                      .step_us = 40'000,
                      .stages = {{"decode", us}}});
  };
  const Stall small = with(512, 200);
  for (const Stall& large : {with(4096, 25), with(1000, 102.4)}) {
    EXPECT_EQ(large.workers_needed, small.workers_needed);
    EXPECT_NEAR(large.predicted_wait_ns, small.predicted_wait_ns, 0.02 * small.step_ns);
  }
  Session damaged = testing::loader_session({}).build();
  damaged.loader["batch"] = 1e15;
  damaged.loader["active"] = 1 << 20;
  EXPECT_GE(diagnosed(damaged).step_ns, 0) << "it ends";
}

TEST(Stall, TellsTheDiskFromTheCpuByWhereTheTimeWent) {
  LoaderCase reading{.workers = 2, .stages = {{"read", 12'000}, {"decode", 3'000}}};
  EXPECT_EQ(diagnosed(reading).bound, Bound::unknown);  // it may be the page cache
  reading.has_cpu = true;
  EXPECT_EQ(diagnosed(reading).bound, Bound::io);
  reading.stages = {{"read", 3'000}, {"decode", 12'000}};
  EXPECT_EQ(diagnosed(reading).bound, Bound::cpu);
}

// Decoding off a core is a wait for one, whatever the share of CPU time.
TEST(Stall, DoesNotCallAWaitForACoreADisk) {
  SessionBuilder builder = testing::loader_session({.workers = 1});
  builder.raw().loader["cpu_ns"] = 30;
  builder.raw().loader["stages_ns"] = {{"decode", 100}};
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::unknown);
  builder.raw().loader["cpu_ns"] = 95;
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::cpu);
}

// Decoding may wait for a core, and in a plugin for anything.
TEST(Stall, DoesNotCallAStageCpuBoundWithoutItsCpuTime) {
  SessionBuilder builder = testing::loader_session({.workers = 1});
  builder.raw().loader["stages_ns"] = {{"decode", 100}};
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::unknown);
  builder.sample("disk busy %", 1000, 1);
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::unknown);
  builder.raw().loader["cpu_ns"] = 60;  // the rest is neither the disk's nor a core's for certain
  EXPECT_EQ(diagnosed(builder.build()).bound, Bound::unknown);
}

TEST(Stall, PromisesNothingThatItCannotExplain) {
  // The trainer waited for something that the workers' spans do not show.
  SessionBuilder builder = testing::loader_session(
      {.workers = 4, .batch = 4, .stages = {{"decode", 5'000}}, .has_cpu = true});
  for (Step& step : builder.raw().steps) {
    step.begin_ns += (step.step - 1) * 20'000'000;
    step.end_ns += step.step * 20'000'000;
    step.data_ns += 20'000'000;
  }
  builder.raw().windows[0].end_ns += 24 * 20'000'000ULL;
  const Stall stall = diagnosed(builder.build());
  EXPECT_FALSE(stall.fits);
  EXPECT_GT(stall.unexplained_ns, 15e6);
  EXPECT_THAT(stall.text, HasSubstr("are not explained"));
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

TEST(Stall, CopesWithNoLoaderAndNoSteps) {
  EXPECT_THAT(diagnosed(Session{}).text, HasSubstr("too few steps"));
  SessionBuilder builder;
  builder.step(1, 0, 100).step(2, 100, 200, 10, 50);
  const Stall stall = diagnosed(builder.build());
  EXPECT_TRUE(stall.is_stalled);
  EXPECT_THAT(stall.text, HasSubstr("not recorded"));
}

TEST(LoaderModel, PromisesOfAQueueNoMoreThanTheWait) {
  Session session =
      testing::loader_session({.workers = 1,
                               .prefetch = 2,
                               .cores = 4,
                               .kernel_threads = 2,
                               .batch = 32,
                               .steps = 96,
                               .gpu = false,
                               .step_us = 10'000,
                               .stages = {{"decode", 200}},
                               .scale = [](int batch) { return batch % 8 == 3 ? 6.0 : 1.0; }})
          .build();
  for (Step& step : session.steps) {  // something hid three quarters of the waits
    step.end_ns -= step.data_ns / 4 * 3;
    step.data_ns /= 4;
  }
  const LoaderView view = loader_view(session);
  const Gain gain = LoaderModel(view, session).gain({.prefetch = 32});
  EXPECT_GT(gain.ns, 0);
  EXPECT_LE(gain.ns, view.wait_ns);
  EXPECT_LE(gain.most_ns, view.wait_ns);
}

// Its kernels' threads wait for cores, which workers that do next to nothing cannot have had.
TEST(LoaderModel, PromisesNoMoreThanWorkAndWaits) {
  testing::SessionBuilder builder = testing::loader_session({.workers = 1,
                                                             .cores = 4,
                                                             .kernel_threads = 4,
                                                             .batch = 32,
                                                             .steps = 40,
                                                             .gpu = false,
                                                             .step_us = 10'000,
                                                             .stages = {{"decode", 1}}});
  for (const double at : {0.0, 200'000.0, 400'000.0}) builder.sample("main run delay %", at, 40);
  const Session session = builder.build();
  const LoaderView view = loader_view(session);
  const LoaderModel model(view, session);
  ASSERT_TRUE(model.fits());
  const Gain gain = model.gain({.cpu = 0.1, .latency = 0.1});
  EXPECT_GT(gain.most_ns, 0);
  EXPECT_LE(gain.most_ns, view.wait_ns + view.work_ns);
}

// Its threads fall asleep in each wait for data, and wait for their cores again after it: without
// the wait neither is left, also where only one of what may be the source's latency or its
// bandwidth takes it away.
TEST(LoaderModel, PromisesThatATeamWhichDoesNotWaitMayStayOnItsCores) {
  SessionBuilder builder = testing::loader_session({.workers = 2,
                                                    .cores = 2,
                                                    .kernel_threads = 2,
                                                    .batch = 8,
                                                    .steps = 60,
                                                    .gpu = false,
                                                    .step_us = 4'000,
                                                    .stages = {{"read", 2'000}, {"decode", 100}},
                                                    .has_cpu = true,
                                                    .bytes = 5'000});
  for (const char* const name : {"loader 0 run delay %", "loader 1 run delay %"})
    builder.sample(name, 1000, 0);
  for (const double at : {0.0, 100'000.0, 400'000.0}) builder.sample("main run delay %", at, 10);
  const Session session = builder.build();
  const LoaderView view = loader_view(session);
  ASSERT_GT(view.source.most_ns_per_byte, 0);
  const Gain gain = LoaderModel(view, session).gain({.latency = 0});
  const double core_wait_ns = 0.1 * (view.step_ns + view.wait_ns);
  EXPECT_GT(gain.most_ns, view.wait_ns + 0.8 * core_wait_ns);
  EXPECT_LT(gain.most_ns, view.wait_ns + 1.3 * core_wait_ns);
}

// A slow worker's time is no more work: without it the kernels' threads have the cores no sooner.
TEST(LoaderModel, PromisesOfASlowWorkerNoMoreThanTheWait) {
  SessionBuilder builder = testing::loader_session({.workers = 2,
                                                    .cores = 2,
                                                    .kernel_threads = 2,
                                                    .batch = 8,
                                                    .steps = 60,
                                                    .gpu = false,
                                                    .step_us = 20'000,
                                                    .stages = {{"decode", 1'000}},
                                                    .has_cpu = true});
  for (const double at : {0.0, 200'000.0, 400'000.0}) builder.sample("main run delay %", at, 40);
  const Session session = builder.build();
  LoaderView view = loader_view(session);
  view.by_worker.front().slowness = 4;
  const LoaderModel model(view, session);
  ASSERT_GT(model.gain({.cpu = 0.5}).most_ns, 2 * view.wait_ns);
  const Gain gain = model.gain({.even_workers = true});
  EXPECT_LE(gain.ns, view.wait_ns);
  EXPECT_LE(gain.most_ns, view.wait_ns);
}

// As where a source serves some reads at once and then none for a while: more workers would share
// it, or not. Few are those that a fit of the source leaves out.
TEST(LoaderModel, PromisesLittleOfWorkersWhereFewReadsHaveTheWait) {
  const auto gain = [](int period, const char* stage = "read", double blocked = 1) {
    SessionBuilder builder = testing::loader_session(
        {.workers = 1,
         .cores = 8,
         .batch = 1,
         .steps = 200,
         .step_us = 500,
         .stages = {{stage, 1'000}},
         .has_cpu = true,
         .bytes = 5'000,
         .scale = [=](int batch) { return batch % period == 7 ? 5.0 * period : 1.0; }});
    builder.sample("loader 0 run delay %", 1000, 0);
    const Session session = builder.build();
    LoaderView view = loader_view(session);
    view.source.least_ns_per_byte = view.source.most_ns_per_byte = view.source.ns_per_byte = 0;
    view.blocked_ns *= blocked;
    return LoaderModel(view, session).gain({.workers = 4});
  };
  EXPECT_EQ(gain(100).least_ns, 0);
  EXPECT_GT(gain(100).most_ns, 1e5);
  EXPECT_GT(gain(20).least_ns, 1e5);             // 5 % of the reads are not few
  EXPECT_GT(gain(100, "decode").least_ns, 1e5);  // which shares nothing
  EXPECT_GT(gain(100, "read", 0.15).least_ns, 1e5) << "reads have little of the workers' time";
}

// Of two readers all the time.
TEST(LoaderModel, PromisesOfMoreReadersWhatTheSourceLeavesOpen) {
  SessionBuilder builder = testing::blocked_readers(2, 8);
  const Session session = builder.build();
  const auto least = [&](const LoaderView& view) {
    return LoaderModel(view, session).gain({.workers = 4}).least_ns;
  };
  const LoaderView view = loader_view(session);
  ASSERT_FALSE(view.source.tells_apart());
  EXPECT_EQ(least(view), 0);
  LoaderView known = view;  // to be latency, mostly
  known.source.least_ns_per_byte = known.source.most_ns_per_byte = known.source.ns_per_byte =
      0.1 * known.source.limit_ns_per_byte;
  EXPECT_GT(least(known), 1e6);
  LoaderView awake = view;
  awake.blocked_ns = 0.04 * awake.work_ns;
  EXPECT_GT(least(awake), 1e6);
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
  const LoaderModel model(view, session);
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

// On two cores the replay gives one worker beside two threads of kernels a part of a core; these
// samples take as long as with a core of their own.
TEST(Stall, MadeAheadIsNoWorkOfStepsThatAllWait) {
  LoaderCase c = slow_loader_on_host(2);
  c.has_cpu = true;
  const Session session = testing::loader_session(c).build();
  const View source(session);
  LoaderView view = loader_view(source);
  const LoaderModel waits(view, source);
  ASSERT_FALSE(waits.fits());
  ASSERT_LT(waits.unexplained_ns(), 0);
  EXPECT_THAT(waits.misfit_text(), HasSubstr("longer: workers got more of the cores"));
  std::ranges::fill(view.waits_ns, 0);
  view.waits_ns.front() = 1'000'000'000;
  const LoaderModel hardly_waits(view, source);
  EXPECT_THAT(hardly_waits.misfit_text(), HasSubstr("longer: batches were made ahead"));
}

}  // namespace
}  // namespace warpstep::profiler

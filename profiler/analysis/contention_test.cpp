#include "profiler/analysis/contention.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/stall.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::SessionBuilder;

// A window from 1 s to 2 s, sampled each half second from 0 on.
SessionBuilder half_seconds() {
  SessionBuilder builder;
  builder.span(Kind::call, "c", 1e6, 1.1e6).step(1, 1e6, 2e6, 1e5).window(1, 1, 1e6, 2e6);
  for (int half = 0; half <= 5; ++half) builder.sample("process rss bytes", half * 5e5, 1);
  return builder;
}

TEST(Contention, IsAMeanOverTheWindowsByTime) {
  SessionBuilder builder = half_seconds();
  builder.thread(5000, "loader 10").thread(5001, "loader 2");
  const auto rate = [&](const char* name, std::initializer_list<double> values) {
    double at = 5e5;
    for (const double value : values) builder.sample(name, std::exchange(at, at + 5e5), value);
  };
  // The sample at 1 s covers the half second before the window.
  rate("main run delay %", {90, 90, 10, 30, 90});
  rate("main on cpu %", {0, 0, 50, 60, 0});
  rate("kernels run delay %", {0, 0, 60, 60, 0});
  rate("kernels threads", {3, 3, 3, 3, 3});
  rate("kernels cpus", {2, 2, 1, 1, 1});      // bound since the window began
  rate("loader 10 run delay %", {0, 0, 40});  // it ended in the middle
  rate("loader 2 run delay %", {0, 0, 10, 10, 0});
  rate("cpu periods/s", {10, 10, 10, 10, 10});
  rate("cpu throttled periods/s", {0, 0, 8, 10, 0});
  rate("cpu throttled %", {0, 0, 60, 80, 0});
  rate("involuntary switches/s", {0, 0, 100, 300, 0});
  rate("memory pressure %", {0, 0, 40, 60, 0});  // of other groups
  rate("group memory pressure %", {0, 0, 4, 6, 0});
  rate("memory limit bytes", {64, 64, 64, 64, 64});
  const Session session = builder.build();
  const Contention found = contention(session);
  EXPECT_NEAR(found.seconds, 1, 1e-9);
  ASSERT_TRUE(found.trainer && found.kernels);
  EXPECT_NEAR(found.trainer->delay_ns, 2e8, 1);
  EXPECT_NEAR(found.trainer->on_cpu_ns, 5.5e8, 1);
  EXPECT_NEAR(found.kernels->delay_ns, 2e8, 1);  // of each of three
  ASSERT_EQ(found.workers.size(), 2U);
  EXPECT_EQ(found.workers[0].thread, "loader 2");
  EXPECT_NEAR(found.workers[0].delay_ns, 1e8, 1);
  EXPECT_NEAR(found.workers[1].delay_ns, 2e8, 1);
  EXPECT_NEAR(found.worker_delay_ns(), 1.5e8, 1);
  EXPECT_NEAR(*found.throttled_share, 0.9, 1e-9);
  EXPECT_NEAR(found.throttled_ns, 7e8, 1);
  EXPECT_NEAR(*found.switches_per_s, 200, 1e-6);
  EXPECT_NEAR(*found.memory_pressure, 0.05, 1e-9);
  EXPECT_FALSE(found.is_machines_pressure);
  EXPECT_EQ(found.memory_limit_bytes, 64);
  EXPECT_EQ(found.team_cpus, 1);
  EXPECT_FALSE(found.major_faults_per_s || found.swapped_pages_per_s || found.others_share);
}

TEST(Contention, ThePressureOfAMachineWithPlentyIsNotTheRuns) {
  SessionBuilder builder = half_seconds();
  for (const double at : {1e6, 1.5e6, 2e6})
    builder.sample("memory pressure %", at, 50)
        .sample("memory available bytes", at, 20.0 * (1 << 30))
        .sample("major faults/s", at, 0);
  const Session session = builder.build();
  Contention found = contention(session);
  EXPECT_NEAR(*found.memory_pressure, 0.5, 1e-9);
  EXPECT_EQ(pressure_on_run(found), 0);
  found.available_bytes = 1 << 20;
  EXPECT_EQ(pressure_on_run(found), *found.memory_pressure);
}

TEST(Contention, OthersAreCountedOnTheAllowedCores) {
  SessionBuilder builder = half_seconds();
  builder.raw().stamp = {{"cpu", {{"cores", 4}}}, {"affinity", "1"}};
  for (const double at : {1e6, 1.5e6, 2e6})
    builder.sample("cpu 0 %", at, 100).sample("cpu 1 %", at, 90).sample("process cpu %", at, 30);
  const Session session = builder.build();
  const Contention found = contention(session);
  EXPECT_EQ(found.affinity_cores, 1);
  EXPECT_EQ(found.machine_cores, 4);
  EXPECT_NEAR(found.others_share.value_or(0), 0.6, 1e-9);
}

TEST(Contention, TellsOtherRanksAndTheHypervisorFromOtherPrograms) {
  SessionBuilder builder = half_seconds();
  builder.raw().stamp = {{"cpu", {{"cores", 4}}}, {"affinity", "0-1"}};
  for (const double at : {1e6, 1.5e6, 2e6})
    builder.sample("cpu 0 %", at, 100).sample("cpu 1 %", at, 90).sample("cpu 3 %", at, 100);
  for (const double at : {1e6, 1.5e6, 2e6})
    builder.sample("process cpu %", at, 80)
        .sample("siblings cpu %", at, 70)
        .sample("stolen cpu %", at, 40);  // of the machine's four CPUs, so 20 of these two
  const Session session = builder.build();
  const auto use = core_use(session, {{SessionBuilder::at(1e6), SessionBuilder::at(2e6)}});
  ASSERT_TRUE(use);
  EXPECT_NEAR(use->cores, 2, 1e-9);
  EXPECT_NEAR(use->busy, 1.9, 1e-9);
  EXPECT_NEAR(use->idle(), 0.1, 1e-9);
  EXPECT_NEAR(use->others(), 0.2, 1e-9);
  const Contention found = contention(session);
  EXPECT_NEAR(found.others_share.value_or(0), 0.1, 1e-9);
  EXPECT_NEAR(found.siblings_share, 0.35, 1e-9);
  EXPECT_NEAR(found.stolen_share, 0.1, 1e-9);
  EXPECT_NEAR(found.taken_share(), 0.55, 1e-9);
}

TEST(CoreUse, IsWeightedByTheTimeOfASample) {
  SessionBuilder builder;
  builder.raw().stamp["cpu"]["cores"] = 2;
  builder.sample("cpu %", 1e6, 100).sample("process cpu %", 1e6, 0);
  builder.sample("cpu %", 4e6, 0).sample("process cpu %", 4e6, 0);
  const Session session = builder.build();
  const auto use = core_use(session, {{SessionBuilder::at(0), SessionBuilder::at(4e6)}});
  EXPECT_NEAR(use->others(), 0.5, 1e-9) << "two cores in a quarter of the time";
  EXPECT_FALSE(core_use(session, {{SessionBuilder::at(5e6), SessionBuilder::at(6e6)}}));
}

TEST(Contention, OfASessionWithoutSamplesIsUnknown) {
  const Session empty;
  const Contention found = contention(empty);
  EXPECT_EQ(found.seconds, 0);
  EXPECT_FALSE(found.has_delays || found.others_share || found.throttled_share || found.trainer);
}

TEST(CoreWait, IsTakenOutOfWhatTheThreadDidAndConserves) {
  Parts parts{};
  const auto at = [&](Category c) -> std::uint64_t& { return parts[static_cast<std::size_t>(c)]; };
  at(Category::kernel) = 600;
  at(Category::cpu) = 200;
  at(Category::data) = 100;
  take_core_wait(parts, 400, true);
  EXPECT_EQ(at(Category::kernel), 300U);
  EXPECT_EQ(at(Category::cpu), 100U);
  EXPECT_EQ(at(Category::data), 100U);  // asleep, as long as awake time explains it
  EXPECT_EQ(at(Category::core_wait), 400U);
  take_core_wait(parts, 450, true);
  EXPECT_EQ(at(Category::data), 50U);
  EXPECT_EQ(at(Category::core_wait), 850U);

  Parts device{};
  device[static_cast<std::size_t>(Category::kernel)] = 600;
  device[static_cast<std::size_t>(Category::cpu)] = 100;
  take_core_wait(device, 300, false);
  EXPECT_EQ(device[static_cast<std::size_t>(Category::kernel)], 600U);
  EXPECT_EQ(device[static_cast<std::size_t>(Category::core_wait)], 100U);

  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    Parts any{};
    for (std::uint64_t& part : any) part = random() % (i % 2 == 0 ? 9 : 5'000'000'000);
    const Parts before = any;
    const auto sum = [](const Parts& p) {
      return std::accumulate(p.begin(), p.end(), std::uint64_t{0});
    };
    take_core_wait(any, random() % (sum(before) + 1), i % 3 == 0);
    ASSERT_EQ(sum(any), sum(before));
    for (std::size_t c = 0; c < categories; ++c)
      ASSERT_TRUE(c == static_cast<std::size_t>(Category::core_wait) || any[c] <= before[c]);
  }
}

TEST(CoreWait, OfEachStepIsRecordedByTheTrainer) {
  SessionBuilder builder;
  for (int i = 0; i < 2; ++i) {
    builder.step(static_cast<std::uint64_t>(i + 1), 100 * i, 100 * (i + 1), 80)
        .span(Kind::call, "c", 100 * i + 10, 100 * i + 90)
        .span(Kind::counter, "core wait ns", 100 * i, 100 * i, 0, i == 0 ? 40'000 : 999'000'000);
  }
  builder.window(1, 2, 0, 200);
  const Session session = builder.build();
  EXPECT_THAT(core_waits(session), ElementsAre(40'000, 100'000));  // at most the step
  EXPECT_NEAR(*contention(session).trainer_delay_per_step_ns, 70'000, 1e-6);
  const Breakdown breakdown = break_down(session);
  const auto kernel = static_cast<std::size_t>(Category::kernel);
  const auto wait = static_cast<std::size_t>(Category::core_wait);
  EXPECT_EQ(breakdown.steps[0].parts[wait], 40'000U);
  EXPECT_EQ(breakdown.steps[0].parts[kernel], 48'000U);
  EXPECT_EQ(breakdown.steps[1].parts[wait], 100'000U);
  EXPECT_DOUBLE_EQ(breakdown.step_ns, 100'000);
  EXPECT_EQ(break_down(session, {.tb_compatible = true}).steps[0].parts[wait], 0U);
}

// The host's wait for a core in a step of 100 us on a device, as that became part of the step.
std::uint64_t core_wait_on_device(SessionBuilder& builder, std::uint64_t us) {
  builder.step(1, 0, 100).window(1, 1, 0, 100, true);
  builder.span(Kind::counter, "core wait ns", 100 - 1, 100 - 1, 0, us * 1000);
  return break_down(builder.build()).steps[0].parts[static_cast<std::size_t>(Category::core_wait)];
}

TEST(CoreWait, BesideADeviceCountsWhereThatHadNothingToDo) {
  SessionBuilder starved;  // nothing but the wait is between its two kernels
  starved.gpu().launch(1, 2, What::kernel, "a", 10, 20).launch(80, 82, What::kernel, "a", 90, 100);
  EXPECT_EQ(core_wait_on_device(starved, 50), 50'000U);

  // A graph that was launched early: its gap of 20 us is the device's own.
  SessionBuilder ahead;
  ahead.gpu().launch(1, 2, What::kernel, "a", 0, 40).launch(1, 2, What::kernel, "b", 60, 100);
  std::uint64_t node = 0;
  for (Activity& activity : ahead.raw().activities)
    if (activity.what == What::kernel) activity.correlation = 7, activity.graph_node = ++node;
  EXPECT_EQ(core_wait_on_device(ahead, 50), 0U);

  // The host sleeps for 60 us until the device is done, which is idle for 20: it has time to spare.
  SessionBuilder spare;
  spare.gpu().launch(1, 2, What::kernel, "a", 20, 100).span(Kind::sync, "wait", 40, 100);
  EXPECT_EQ(core_wait_on_device(spare, 40), 10'000U);
}

TEST(CoreWait, OfAWindowOfThePastIsSampledWhereOthersHaveFewSteps) {
  const auto waits = [](int read) {
    SessionBuilder builder;
    for (int i = 0; i < 10; ++i) {
      builder.step(static_cast<std::uint64_t>(i + 1), 100 * i, 100 * (i + 1), 80)
          .span(Kind::call, "c", 100 * i + 10, 100 * i + 90);
      if (i >= 10 - read) builder.span(Kind::counter, "core wait ns", 100 * i, 100 * i, 0, 40'000);
    }
    builder.window(1, 10, 0, 1000);
    builder.sample("main run delay %", 600, 4).sample("main run delay %", 1000, 40);
    return core_waits(builder.build());
  };
  EXPECT_EQ(waits(5)[0], 40'000U) << "as in the other half";
  const std::vector<std::uint64_t> few = waits(4);
  EXPECT_NEAR(static_cast<double>(few[0]), 4000, 1);
  EXPECT_EQ(few[9], 40'000U);
}

// What the trainer reads after an evaluation is of that as well.
TEST(CoreWait, BetweenStepsIsNotLost) {
  SessionBuilder builder;
  const double begins[] = {0, 100, 500};  // 300 us between the last two
  for (int i = 0; i < 3; ++i)
    builder.step(static_cast<std::uint64_t>(i + 1), begins[i], begins[i] + 100, 80)
        .span(Kind::call, "c", begins[i] + 10, begins[i] + 90)
        .span(Kind::counter, "core wait ns", begins[i], begins[i], 0, i == 2 ? 200'000 : 20'000);
  builder.window(1, 3, 0, 600);
  const Session session = builder.build();
  EXPECT_THAT(core_waits(session), ElementsAre(20'000, 20'000, 50'000));
  EXPECT_NEAR(contention(session).between_delay_per_step_ns, 50'000, 1e-6);
  SessionBuilder apart = builder;  // between two windows nothing was read
  apart.raw().windows.clear();
  apart.window(1, 2, 0, 200).window(3, 3, 500, 600);
  EXPECT_THAT(core_waits(apart.build()), ElementsAre(20'000, 20'000, 100'000));
}

TEST(Contention, NamesOtherProgramsAndTheTracer) {
  SessionBuilder builder;
  builder.step(1, 0, 2'000'000).window(1, 1, 0, 2'000'000);
  EXPECT_FALSE(contention(builder.build()).knows_programs);
  for (const double at : {1e6, 2e6})
    builder.sample("process cpu %", at, 100).sample("other processes", at, 90);
  builder.sample("program sh cpu %", 1e6, 80).sample("program cc1plus cpu %", 1e6, 40);
  builder.sample("program cc1plus cpu %", 2e6, 100).sample("traced by gdb", 2e6, 1);
  const Contention found = contention(builder.build());
  EXPECT_TRUE(found.knows_programs);
  EXPECT_EQ(found.tracer, "gdb");
  ASSERT_EQ(found.programs.size(), 2U);
  EXPECT_EQ(found.programs[0].name, "cc1plus");
  EXPECT_NEAR(found.programs[0].cores, 0.7, 0.01);
  EXPECT_NEAR(found.programs[1].cores, 0.4, 0.01);
}

TEST(WorkerParts, AddUpToTheWindows) {
  Contention found;
  found.window_ns = 1000;
  const auto sum = [](const WorkerParts& parts) {
    return std::accumulate(parts.stage_ns.begin(), parts.stage_ns.end(), 0.0) + parts.idle_ns +
           parts.core_wait_ns + parts.other_ns;
  };
  WorkerParts parts = worker_parts("loader 0", {100, 300}, 200, found);
  EXPECT_EQ(parts.other_ns, 400);
  EXPECT_EQ(sum(parts), 1000);
  found.workers = {{.thread = "loader 0", .delay_ns = 3e8}};
  parts = worker_parts("loader 0", {100, 300}, 200, found);
  EXPECT_NEAR(parts.core_wait_ns, 300, 1e-9);  // all of it between samples
  EXPECT_THAT(parts.stage_ns, ElementsAre(100, 300));
  found.workers[0].delay_ns = 6e8;
  parts = worker_parts("loader 0", {100, 300}, 200, found);
  EXPECT_THAT(parts.stage_ns, ElementsAre(DoubleNear(50, 1e-9), DoubleNear(150, 1e-9)));
  EXPECT_NEAR(sum(parts), 1000, 1e-9);
}

// Two workers whose samples take all of the window, with a tenth of that in CPU time.
Stall slow_workers(double delay_percent, double others) {
  SessionBuilder builder;
  builder.raw().loader = {{"batch", 8}, {"workers", 1}, {"prefetch", 2}, {"cores", 2}};
  builder.raw().stamp = {{"cpu", {{"cores", 2}}}};
  builder.thread(5000, "loader 0");
  for (int i = 0; i < 10; ++i) {
    builder.step(static_cast<std::uint64_t>(i + 1), 1000 * i, 1000 * (i + 1), 100, 800);
    builder.span(Kind::wait, "wait for data", 1000 * i, 1000 * i + 800);
    for (int s = 0; s < 8; ++s) {
      const double at = 1000 * i + 125 * s;
      builder.span(Kind::sample, "sample", at, at + 120, 1, static_cast<std::uint64_t>(8 * i + s))
          .span(Kind::stage, "decode", at, at + 119, 1);
    }
    builder.span(Kind::counter, "worker cpu ns", 1000 * i, 1000 * i, 1, 96'000);
  }
  builder.window(1, 10, 0, 10'000);
  builder.sample("loader 0 run delay %", 10'000, delay_percent);
  builder.sample("cpu %", 10'000, 10 + others).sample("process cpu %", 10'000, 20);
  const Session session = builder.build();
  return diagnose(loader_view(session), session);
}

TEST(WorkersBound, IsNoDiskWhereTheyWaitForACore) {
  EXPECT_EQ(slow_workers(0, 0).bound, Bound::io);
  EXPECT_EQ(slow_workers(20, 0).bound, Bound::io);
  EXPECT_EQ(slow_workers(80, 80).bound, Bound::core);
}

}  // namespace
}  // namespace warpstep::profiler

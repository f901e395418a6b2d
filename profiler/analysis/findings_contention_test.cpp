#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;
using ::testing::Not;

// On the host, with two threads of kernels on two cores.
Case on_host() {
  Case c(false);
  c.builder.raw().loader["kernel_threads"] = 2;
  Contention& lost = c.analysis.contention;
  lost.seconds = 6;
  lost.cores = lost.affinity_cores = lost.machine_cores = 2;
  lost.has_delays = true;
  lost.trainer = {.thread = "main", .delay_ns = 5e7};
  c.part(Category::core_wait) = 2e5;
  return c;
}

TEST(FindOtherPrograms, WhereTheyTakeCoresThatTheRunWants) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.10;
  const auto finding = c.finding("other-programs");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("10.0 % of 2 cores taken by others"));
  EXPECT_THAT(finding->evidence, HasSubstr("the trainer's thread 5.0 % of the time"));
  EXPECT_EQ(finding->gain_ns, 2e5);
  lost.others_share = 0.099;
  EXPECT_FALSE(c.finding("other-programs"));
  lost.others_share = 0.9;
  lost.trainer->delay_ns = 4.9e7;  // on cores that were idle
  EXPECT_FALSE(c.finding("other-programs"));
  lost.workers = {{.thread = "loader 0", .delay_ns = 5e7}};
  EXPECT_TRUE(c.finding("other-programs"));
  lost.has_delays = false;
  lost.others_share = 0.249;
  EXPECT_FALSE(c.finding("other-programs"));
  lost.others_share = 0.25;
  EXPECT_TRUE(c.finding("other-programs"));
}

TEST(FindOtherPrograms, SaysThatTheRunYieldsToThem) {
  Case c = on_host();
  c.analysis.contention.others_share = 0.5;
  Json& stamp = c.builder.raw().stamp;
  stamp["scheduling"] = {{"nice", 10}};
  const auto finding = c.finding("other-programs");
  EXPECT_THAT(finding->text, HasSubstr("come before it"));
  EXPECT_THAT(finding->evidence, ::testing::StartsWith("nice 10; 50.0 % of 2 cores"));
  EXPECT_THAT(finding->advice, HasSubstr("without nice"));
  EXPECT_THAT(finding->advice, HasSubstr("stop them"));
  stamp["scheduling"] = {{"policy", "idle"}};
  EXPECT_THAT(c.finding("other-programs")->evidence, ::testing::StartsWith("policy idle; "));
  stamp["scheduling"] = {{"nice", 5}, {"policy", "batch"}};
  EXPECT_THAT(c.finding("other-programs")->evidence,
              ::testing::StartsWith("nice 5, policy batch; "));
  for (const Json& before : {Json{{"nice", -5}}, Json{{"policy", "fifo"}, {"nice", 5}}, Json()}) {
    stamp["scheduling"] = before;
    EXPECT_THAT(c.finding("other-programs")->text, Not(HasSubstr("before"))) << before;
  }
}

TEST(FindOtherPrograms, SaysThatTheGroupYieldsToOthers) {
  Case c = on_host();
  c.analysis.contention.others_share = 0.5;
  EXPECT_THAT(c.finding("other-programs")->advice, ::testing::StartsWith("stop them"));
  c.builder.raw().stamp["cgroup"] = {{"cpu_weight", 6.25}};
  const auto finding = c.finding("other-programs");
  EXPECT_THAT(finding->evidence, HasSubstr("cpu.weight is 6.25 of the usual 100"));
  EXPECT_THAT(finding->advice, ::testing::StartsWith("raise the weight"));
  EXPECT_THAT(finding->advice, HasSubstr("stop them"));
}

TEST(FindOtherPrograms, SaysWhichComeBeforeAllUsualOnes) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.5;
  lost.knows_programs = true;
  lost.programs = {{"cc1plus", 0.4}, {"audio (real-time)", 0.3}};
  EXPECT_THAT(c.finding("other-programs")->advice,
              HasSubstr("audio (real-time) comes before all usual programs"));
  lost.programs.pop_back();
  EXPECT_THAT(c.finding("other-programs")->advice, Not(HasSubstr("usual programs")));
}

// A step's threads wait at its end for the one that shares its core.
TEST(FindOtherPrograms, OnOneOfManyCores) {
  Case c = on_host();
  c.builder.raw().loader["kernel_threads"] = 16;
  Contention& lost = c.analysis.contention;
  lost.cores = lost.affinity_cores = lost.machine_cores = 16;
  lost.trainer->delay_ns = 2e6;
  lost.kernels = {.thread = "kernels", .threads = 15, .delay_ns = 3.3e7};
  lost.trainer_delay_per_step_ns = c.part(Category::core_wait) = 2e3;
  lost.others_share = 1.0 / 16;
  const auto finding = c.finding("other-programs");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->gain_least_ns, 2e3, 1);
  EXPECT_NEAR(finding->gain_most_ns, 15 * 3.3e4, 1);
  EXPECT_THAT(finding->advice, HasSubstr("use --threads 15:"));
  lost.kernels->delay_ns = 3e6;
  EXPECT_FALSE(c.finding("other-programs"));
  lost.kernels->delay_ns = 3.3e7;
  lost.others_share = 0.4 / 16;
  EXPECT_FALSE(c.finding("other-programs"));
}

// The trainer's own thread has its core, and sleeps at barriers.
TEST(FindOtherPrograms, CostWhatAnotherThreadOfTheTeamWaited) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.25;
  lost.trainer_delay_per_step_ns = c.part(Category::core_wait) = 2e3;  // 0.2 % of a step
  lost.kernels = {.thread = "kernels", .delay_ns = 5e8};
  const auto finding = c.finding("other-programs");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->gain_least_ns, 2e3, 1);
  EXPECT_NEAR(finding->gain_most_ns, 5e5, 1);
  EXPECT_THAT(finding->evidence, HasSubstr("the kernels' other thread 50.0 % of the time"));
}

// What the threads computed takes its time, wherever they waited.
TEST(FindOtherPrograms, NeverCostWholeSteps) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.25;
  lost.affinity_cores = 8;
  lost.trainer_delay_per_step_ns = c.part(Category::core_wait) = 2e3;
  lost.trainer = {.thread = "main", .delay_ns = 0, .on_cpu_ns = 6e8};
  lost.kernels = {.thread = "kernels", .threads = 7, .delay_ns = 3e8, .on_cpu_ns = 6e8};
  const double delays = 7 * 0.5, step_ns = 1e6;
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, delays / (1 + delays) * step_ns, 1);
  lost.affinity_cores = 6;  // all of which the threads would need for 0.8 of the time
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, 0.2 * step_ns, 1);
  lost.trainer_delay_per_step_ns.reset();  // samples alone
  c.part(Category::core_wait) = 0;
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, 0.2 * step_ns, 1);
}

TEST(FindOtherPrograms, NamesTheLargest) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.5;                                                           // of 2 cores
  EXPECT_THAT(c.finding("other-programs")->evidence, Not(HasSubstr("most of it")));  // not known
  lost.knows_programs = true;
  EXPECT_THAT(c.finding("other-programs")->evidence, HasSubstr("for a short time each"));
  lost.programs = {{"python3", 0.6}, {"cc1plus", 0.3}, {"sh", 0.1}};
  EXPECT_THAT(c.finding("other-programs")->evidence,
              HasSubstr("; most of it: python3 0.60 cores, cc1plus 0.30 cores;"));
  lost.programs = {{"sh", 0.1}};
  EXPECT_THAT(c.finding("other-programs")->evidence, HasSubstr("for a short time each"));
}

TEST(FindTracer, NamesIt) {
  Case c = on_host();
  EXPECT_FALSE(c.finding("traced"));
  c.analysis.contention.tracer = "strace";
  EXPECT_EQ(c.finding("traced")->text, "strace traces this process.");
  c.analysis.contention.others_share = 0.5;
  const std::vector<Finding> findings = c.findings();
  ASSERT_GE(findings.size(), 2U);
  EXPECT_EQ(findings[0].key, "traced") << "it spoils the figures of the others";
}

TEST(FindOtherPrograms, CostWhatTheTrainerWaitedInAndBetweenSteps) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.5;
  lost.trainer_delay_per_step_ns = 2e5;
  EXPECT_THAT(c.finding("other-programs")->evidence, Not(HasSubstr("between steps")));
  lost.between_delay_per_step_ns = 1e5;  // of an evaluation
  const auto finding = c.finding("other-programs");
  EXPECT_EQ(finding->gain_ns, 2e5) << "a step has no part of what is between steps";
  EXPECT_DOUBLE_EQ(finding->run_gain_ns, 10 * 3e5);
  EXPECT_THAT(finding->evidence, HasSubstr("100 us per step of it in evaluations"));
  EXPECT_EQ(finding->gain_most_ns, 0);
  lost.between_delay_per_step_ns = 3e6;  // three times the steps
  EXPECT_EQ(c.finding("other-programs")->gain_ns, 2e5);
  EXPECT_DOUBLE_EQ(c.finding("other-programs")->run_gain_ns, 1e7) << "at most the run";
}

TEST(FindOtherPrograms, CostNothingWhileTheLoaderTakesAsLongAsAStep) {
  Case c = on_host();
  c.analysis.contention.others_share = 0.5;
  c.analysis.stall.is_stalled = true;
  c.analysis.loader.workers = 1;
  c.analysis.loader.work_ns = 1e6;
  EXPECT_EQ(c.finding("other-programs")->gain_ns, 0);
  c.analysis.loader.work_ns = 9e5;
  EXPECT_EQ(c.finding("other-programs")->gain_ns, 1e5);
}

// With --profile steps the thread does not count its own waiting.
TEST(FindOtherPrograms, CostWhatWasSampledWhereNothingElseIsKnown) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0.5;
  c.part(Category::core_wait) = 0;
  lost.trainer->delay_ns = 4e8;
  EXPECT_NEAR(c.finding("other-programs")->gain_ns, 4e5, 1);
  EXPECT_EQ(c.finding("other-programs")->gain_most_ns, 0);
  lost.kernels = {.thread = "kernels", .delay_ns = 6e8};
  EXPECT_NEAR(c.finding("other-programs")->gain_least_ns, 4e5, 1);
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, 6e5, 1);
  lost.kernels.reset();
  lost.window_ns = 12e6;  // 10 steps of 1 ms, and 2 ms between them
  EXPECT_NEAR(c.finding("other-programs")->gain_least_ns, 2.8e5, 1);
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, 4.8e5, 1);
  lost.has_delays = false;
  lost.trainer.reset();
  EXPECT_NEAR(c.finding("other-programs")->gain_most_ns, 5e5, 1);
  EXPECT_NEAR(c.finding("other-programs")->gain_ns, 2.5e5, 1);
}

TEST(FindStolenCores, WhereTheHypervisorTakesThem) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0;
  lost.stolen_share = 0.25;
  c.part(Category::kernel) = 4e5;
  const auto finding = c.finding("stolen-cores");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("0.50 of 2 cores (steal)"));
  EXPECT_THAT(finding->advice, HasSubstr("dedicated CPUs or another host"));
  EXPECT_NEAR(finding->gain_most_ns, 1e5, 1);
  EXPECT_FALSE(c.finding("other-programs"));
  lost.stolen_share = 0.09;
  EXPECT_FALSE(c.finding("stolen-cores"));
}

TEST(FindOtherPrograms, AdviseAsManyThreadsAsCoresAreFree) {
  Case c = on_host();
  c.builder.raw().loader["kernel_threads"] = 4;
  Contention& lost = c.analysis.contention;
  lost.affinity_cores = 4;
  lost.others_share = 0.25;
  EXPECT_THAT(c.finding("other-programs")->advice, HasSubstr("use --threads 3:"));
  lost.siblings_share = 0.5;
  EXPECT_THAT(c.finding("other-programs")->advice, HasSubstr("use --threads 1:"));
}

TEST(FindOtherPrograms, AdviseNoFewerThreadsWhereTheyTakeAPartOfACore) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  for (const double share : {0.1, 0.18, 0.34, 0.37}) {  // at least 1.26 cores are free
    lost.others_share = share;
    EXPECT_THAT(c.finding("other-programs")->advice, Not(HasSubstr("--threads"))) << share;
  }
  for (const double share : {0.38, 0.5, 0.8}) {
    lost.others_share = share;
    const auto finding = c.finding("other-programs");
    EXPECT_THAT(finding->advice, HasSubstr("while they run use --threads 1:")) << share;
    EXPECT_EQ(finding->flag, "") << "the gain is of stopping them";
  }
}

TEST(FindStopped, WhereNothingExplainsAPartOfTheSteps) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.trainer->on_cpu_ns = 8.1e8;  // and 0.5e8 without a core
  EXPECT_FALSE(c.finding("stopped"));
  lost.trainer->on_cpu_ns = 7.9e8;
  const auto finding = c.finding("stopped");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->gain_ns, 1.6e5, 1);
  EXPECT_THAT(finding->evidence, HasSubstr("160 us of 1.00 ms per step (16.0 %)"));
  EXPECT_THAT(finding->advice, HasSubstr("SIGSTOP"));
  c.part(Category::data) = 2e4;  // waits for the loader
  EXPECT_FALSE(c.finding("stopped"));
  c.part(Category::data) = 0;
  lost.window_ns = 10.2e6;  // a checkpoint between the steps, which waits for its disk
  EXPECT_FALSE(c.finding("stopped"));
  lost.window_ns = 0;
  lost.kernels = {.thread = "kernels", .threads = 1, .delay_ns = 2e7, .on_cpu_ns = 0};
  EXPECT_FALSE(c.finding("stopped"));
  lost.kernels.reset();
  lost.memory_pressure = 0.05;
  EXPECT_FALSE(c.finding("stopped"));
  lost.memory_pressure.reset();
  lost.seconds = 0.9;
  EXPECT_FALSE(c.finding("stopped"));
}

// As cpulimit does: 8 ms on, 8 ms off.
TEST(FindStopped, OfATeamWhoseThreadsStopTogether) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.trainer = {.thread = "main", .delay_ns = 0, .on_cpu_ns = 5e8};
  lost.kernels = {.thread = "kernels", .threads = 3, .delay_ns = 1e7, .on_cpu_ns = 5e8};
  const auto finding = c.finding("stopped");
  ASSERT_TRUE(finding);
  EXPECT_NEAR(finding->gain_ns, 4.7e5, 1);
  lost.kernels->on_cpu_ns = 9e8;  // the trainer waits for the others
  EXPECT_FALSE(c.finding("stopped"));
}

// The mean of the team hides one thread for which all others wait.
TEST(FindStopped, IsNotOneSlowCoreOfATeam) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.trainer = {.thread = "main", .delay_ns = 0, .on_cpu_ns = 5e8};
  lost.kernels = {
      .thread = "kernels", .threads = 7, .delay_ns = 0, .on_cpu_ns = (6 * 5e8 + 1e9) / 7};
  EXPECT_FALSE(c.finding("stopped"));
}

TEST(FindStopped, IsNotWhatTheHypervisorTook) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.trainer = {.thread = "main", .delay_ns = 0, .on_cpu_ns = 8e8};
  lost.kernels = {.thread = "kernels", .delay_ns = 0, .on_cpu_ns = 8e8};
  EXPECT_TRUE(c.finding("stopped"));
  lost.stolen_share = 0.2;
  EXPECT_FALSE(c.finding("stopped"));
  EXPECT_TRUE(c.finding("stolen-cores"));
}

TEST(FindStopped, NamesOpenMpWhereThreadsDoNotSpin) {
  Case c = on_host();
  c.analysis.contention.trainer->on_cpu_ns = 5e8;
  c.builder.raw().stamp["openmp"] = {{"GOMP_SPINCOUNT", "0"}};
  EXPECT_THAT(c.finding("stopped")->advice, HasSubstr("unset OMP_WAIT_POLICY and GOMP_SPINCOUNT"));
}

TEST(FindStopped, IsNotATerminalThatObserversWaitFor) {
  Case c = on_host();
  c.analysis.contention.trainer->on_cpu_ns = 5e8;
  EXPECT_TRUE(c.finding("stopped"));
  for (int i = 0; i < 10; ++i) c.builder.span(Kind::range, "observers", 1000 * i, 1000 * i + 400);
  EXPECT_FALSE(c.finding("stopped"));
}

TEST(FindCpuQuota, WhereItStopsTheRun) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.quota_cores = 0.25;
  lost.periods_per_s = 10;
  lost.throttled_periods_per_s = 0.5;
  lost.throttled_share = 0.05;
  const auto finding = c.finding("cpu-quota");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence,
              HasSubstr("throttled in 3 of 60 periods (5.0 %), the quota is 0.25 cores of 2"));
  EXPECT_THAT(finding->advice, HasSubstr("within the quota use --threads 1"));
  EXPECT_EQ(finding->flag, "") << "the gain is of raising the quota";
  lost.throttled_ns = 4e7;  // of the trainer's 5e7
  EXPECT_NEAR(c.finding("cpu-quota")->gain_ns, 1.6e5, 1);
  lost.others_share = 0.25;
  EXPECT_NEAR(c.finding("other-programs")->gain_ns, 0.4e5, 1);
  lost.others_share = 0.2;  // the delay is the quota's
  EXPECT_FALSE(c.finding("other-programs"));
  c.builder.raw().loader["kernel_threads"] = 1;
  EXPECT_THAT(c.finding("cpu-quota")->advice, Not(HasSubstr("--threads")));
  lost.throttled_share = 0.049;
  EXPECT_FALSE(c.finding("cpu-quota"));
}

TEST(FindNarrowAffinity, WhereThreadsShareFewerCpus) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.affinity_cores = 1;
  c.builder.raw().stamp["affinity"] = "1";
  auto finding = c.finding("narrow-affinity");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence,
              HasSubstr("1 CPU of the machine's 2 (1) for 2 threads of kernels"));
  EXPECT_EQ(finding->flag, "--threads 1");
  lost.trainer->delay_ns = 4.9e7;
  EXPECT_FALSE(c.finding("narrow-affinity"));
  lost.trainer->delay_ns = 5e7;
  c.builder.raw().loader["kernel_threads"] = 1;  // as many threads as CPUs
  EXPECT_FALSE(c.finding("narrow-affinity"));
  c.analysis.loader.workers = 2;
  EXPECT_EQ(c.finding("narrow-affinity")->flag, "--workers 1");
  lost.affinity_cores = 2;
  EXPECT_FALSE(c.finding("narrow-affinity"));
}

// As a library that was loaded into an mlp on two cores: "others" have nothing of its thread.
TEST(FindForeignThreads, WhereTheyTakeCoresThatTheRunWants) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  lost.others_share = 0;
  EXPECT_FALSE(c.finding("foreign-threads"));
  lost.threads = {{.thread = "other threads", .on_cpu_ns = 2e8}};
  const auto finding = c.finding("foreign-threads");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("0.20 of 2 cores by threads that are neither"));
  EXPECT_THAT(finding->evidence, HasSubstr("the trainer's thread 5.0 % of the time"));
  EXPECT_THAT(finding->advice, Not(HasSubstr("--threads")));
  EXPECT_EQ(finding->gain_ns, 2e5);
  EXPECT_FALSE(c.finding("other-programs"));
  lost.threads[0].on_cpu_ns = 1e9;
  EXPECT_THAT(c.finding("foreign-threads")->advice, HasSubstr("while they run use --threads 1"));
  lost.threads[0].on_cpu_ns = 2e8;
  lost.others_share = 0.3;  // the wait is shared as the cores were
  EXPECT_NEAR(c.finding("foreign-threads")->gain_ns, 0.5e5, 1);
  EXPECT_NEAR(c.finding("other-programs")->gain_ns, 1.5e5, 1);
  lost.threads[0].on_cpu_ns = 1.9e8;
  EXPECT_FALSE(c.finding("foreign-threads"));
  EXPECT_EQ(c.finding("other-programs")->gain_ns, 2e5);
  lost.threads[0].on_cpu_ns = 1e9;
  lost.trainer->delay_ns = 4.9e7;  // on cores that were idle
  EXPECT_FALSE(c.finding("foreign-threads"));
}

TEST(FindBoundThreads, WhereOpenMpGivesThemOneCpu) {
  Case c = on_host();
  Contention& lost = c.analysis.contention;
  EXPECT_FALSE(c.finding("bound-threads"));  // not known
  lost.team_cpus = 1;
  EXPECT_THAT(c.finding("bound-threads")->advice, HasSubstr("the cpuset of the control group"));
  c.builder.raw().stamp["openmp"]["OMP_PROC_BIND"] = "close";
  const auto finding = c.finding("bound-threads");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->advice, ::testing::StartsWith("unset OMP_PROC_BIND"));
  EXPECT_THAT(finding->evidence, HasSubstr("2 threads on 1 CPU; the process may use 2"));
  EXPECT_NEAR(finding->gain_most_ns, (1e6 + 2e5) / 2, 1);
  lost.team_cpus = 2;
  EXPECT_FALSE(c.finding("bound-threads"));
  lost.team_cpus = lost.affinity_cores = 1;  // that is narrow-affinity
  EXPECT_FALSE(c.finding("bound-threads"));
}

}  // namespace
}  // namespace warpstep::profiler

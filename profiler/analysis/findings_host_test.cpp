#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;
using testing::SessionBuilder;

// A host of 8 cores whose kernels have `threads`, with workers of which `enough` would do.
Case oversubscribed(int threads, int workers, double enough, double cpu) {
  Case c(false);
  c.builder.raw().loader["cores"] = 8;
  c.builder.raw().loader["kernel_threads"] = threads;
  c.builder.sample("cpu %", 5000, cpu);
  c.analysis.loader.workers = workers;
  c.analysis.loader.step_ns = 1e6;
  c.analysis.loader.work_ns = enough * 1e6;
  return c;
}

TEST(HostFindings, OversubscribedCores) {
  EXPECT_FALSE(oversubscribed(4, 4, 1, 100).finding("oversubscribed"));
  EXPECT_FALSE(oversubscribed(8, 4, 1, 94).finding("oversubscribed"));
  const auto flag = [](Case c) {
    const auto finding = c.finding("oversubscribed");
    return finding ? finding->flag : "none";
  };
  EXPECT_EQ(flag(oversubscribed(8, 4, 1.5, 96)), "--workers 2");
  EXPECT_EQ(flag(oversubscribed(0, 4, 1.5, 96)), "--workers 2");  // 0: a thread a core
  EXPECT_EQ(flag(oversubscribed(16, 4, 1.5, 96)), "--threads 8");
  EXPECT_EQ(flag(oversubscribed(8, 2, 2, 96)), "--threads 6");
  EXPECT_EQ(flag(oversubscribed(8, 4, 4, 96)), "none");  // all are needed
  Case stalled = oversubscribed(8, 4, 1.5, 96);
  stalled.analysis.stall.is_stalled = true;
  EXPECT_FALSE(stalled.finding("oversubscribed"));
}

// As an mlp on two cores recorded them: start and checkpoints leave the CPU's mean below any limit.
TEST(HostFindings, ThreadsThatWaitForEachOthersCores) {
  Case c = oversubscribed(8, 1, 0, 74.1);
  c.builder.raw().loader["cores"] = 2;
  EXPECT_FALSE(c.finding("oversubscribed"));
  Contention& lost = c.analysis.contention;
  lost.has_delays = true;
  lost.trainer = {.thread = "main", .delay_ns = 2.788e8, .on_cpu_ns = 3.563e8};
  lost.kernels = {.thread = "kernels", .threads = 7, .delay_ns = 2.784e8, .on_cpu_ns = 1.399e8};
  lost.switches_per_s = 2632;
  c.analysis.breakdown.step_ns = 4.340e6;
  c.part(Category::kernel) = 2.831e6;
  c.part(Category::core_wait) = 1.429e6;
  const auto finding = c.finding("oversubscribed");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--threads 2");
  EXPECT_THAT(finding->evidence, HasSubstr("8 threads of kernels and 1 worker on 2 cores"));
  EXPECT_THAT(finding->evidence, HasSubstr("the trainer's thread 27.9 % of the time"));
  EXPECT_THAT(finding->evidence, HasSubstr("2632 involuntary switches per second"));
  // Of 4.26 ms the two cores compute, or spin, 2.90; the trainer's thread waits 1.43.
  EXPECT_NEAR(finding->gain_ns, (1.362e6 + 1.429e6) / 2, 2e3);
  EXPECT_EQ(finding->gain_most_ns, 0);  // a range as narrow as that is none
  lost.trainer->on_cpu_ns = 5e8;
  EXPECT_NEAR(c.finding("oversubscribed")->gain_least_ns, 1.050e6, 2e3);
  EXPECT_NEAR(c.finding("oversubscribed")->gain_most_ns, 1.429e6, 1);
  lost.trainer->on_cpu_ns = 9.9e8;  // cores that never idle: the threads may spin
  EXPECT_EQ(c.finding("oversubscribed")->gain_least_ns, 0);
  EXPECT_NEAR(c.finding("oversubscribed")->gain_most_ns, 1.429e6, 1);
  lost.trainer->delay_ns = lost.kernels->delay_ns = 4.9e7;
  EXPECT_FALSE(c.finding("oversubscribed"));
  lost.kernels->delay_ns = 5e7;
  EXPECT_TRUE(c.finding("oversubscribed"));
  c.builder.raw().loader["kernel_threads"] = 2;  // as many as cores: the wait has another cause
  EXPECT_FALSE(c.finding("oversubscribed"));
}

TEST(HostFindings, IdleCores) {
  Case c = oversubscribed(1, 1, 0, 60);
  c.builder.raw().loader["cores"] = 2;
  c.builder.sample("process cpu %", 5000, 110);
  const auto finding = c.finding("idle-cores");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--threads 2");
  EXPECT_THAT(finding->evidence, HasSubstr("1 thread of kernels; of 2 cores 0.90 are idle"));
  EXPECT_NEAR(finding->gain_most_ns, 0.5e6, 1);
  EXPECT_EQ(finding->gain_least_ns, 0) << "kernels may be limited by memory";
  c.analysis.contention.others_share = 0.25;  // of both
  EXPECT_FALSE(c.finding("idle-cores"));
  c.analysis.contention.affinity_cores = 8;  // a quota of 2: others leave 6
  EXPECT_TRUE(c.finding("idle-cores"));
  c.analysis.contention.others_share = 0;
  c.builder.raw().stamp["openmp"] = {{"OMP_THREAD_LIMIT", "1"}};
  EXPECT_EQ(c.finding("idle-cores")->flag, "");
  EXPECT_THAT(c.finding("idle-cores")->advice, HasSubstr("unset OMP_THREAD_LIMIT"));
  c.builder.raw().stamp["openmp"] = Json::object();
  c.options()["pin_cpus"] = "0";  // with which --threads 2 is refused
  EXPECT_EQ(c.finding("idle-cores")->flag, "--pin-cpus auto --threads 2");
  EXPECT_THAT(c.finding("idle-cores")->advice, HasSubstr("--pin-cpus 0 has only 1 CPU"));
  for (const char* const room : {"0-1", "auto", "none"}) {
    c.options()["pin_cpus"] = room;
    EXPECT_EQ(c.finding("idle-cores")->flag, "--threads 2") << room;
  }
  c.analysis.stall.is_stalled = true;  // more threads would wait, too
  EXPECT_FALSE(c.finding("idle-cores"));
  c.analysis.stall.is_stalled = false;
  c.builder.raw().loader["kernel_threads"] = 2;
  EXPECT_FALSE(c.finding("idle-cores"));
}

// A second thread of a core computes little more.
TEST(HostFindings, IdleThreadsOfCoresThatComputeAreNotPromised) {
  Case c = oversubscribed(4, 1, 0, 60);
  c.builder.sample("process cpu %", 5000, 410);
  EXPECT_NEAR(c.finding("idle-cores")->gain_most_ns, 0.5e6, 1);
  c.options()["pin_cpus"] = "0-5";  // room for two more, but not for four
  EXPECT_THAT(c.finding("idle-cores")->advice, HasSubstr("--pin-cpus 0-5 has only 6 CPUs"));
  c.options()["pin_cpus"] = "none";
  c.builder.raw().stamp["cpu"]["physical_cores"] = 6;
  EXPECT_EQ(c.finding("idle-cores")->flag, "--threads 8");
  EXPECT_NEAR(c.finding("idle-cores")->gain_most_ns, 1e6 * 2 / 6, 1);
  c.builder.raw().stamp["cpu"]["physical_cores"] = 4;
  EXPECT_FALSE(c.finding("idle-cores"));
}

TEST(HostFindings, FullMemoryOfADevice) {
  Case c;
  const double all = 150'754'820'096;
  c.builder.sample("gpu 0 memory used bytes", 100, 0.90 * all);
  EXPECT_FALSE(c.finding("memory-high"));
  c.builder.sample("gpu 0 memory used bytes", 200, 0.901 * all);
  ASSERT_TRUE(c.finding("memory-high"));
  EXPECT_EQ(c.finding("memory-high")->flag, "--batch 64");
  EXPECT_THAT(c.finding("memory-high")->evidence, HasSubstr("of 140 GiB (90.1 %)"));
  Case instance;  // of MIG: NVML's figure is of the whole GPU
  instance.builder.sample("gpu 0 memory used bytes", 200, 2.0 * all);
  EXPECT_FALSE(instance.finding("memory-high"));
  Case planned;
  planned.builder.raw().program["memory"]["total_bytes"] = 0.95 * all;
  EXPECT_TRUE(planned.finding("memory-high"));
}

TEST(HostFindings, FullMemoryOfTheHost) {
  Case c(false);
  c.builder.sample("process rss bytes", 100, 9e9).sample("memory available bytes", 100, 1e9);
  EXPECT_FALSE(c.finding("memory-high"));
  c.builder.sample("process rss bytes", 200, 9.1e9);
  EXPECT_TRUE(c.finding("memory-high"));
}

TEST(HostFindings, ALargerBatchNeedsMemoryOfTheHost) {
  const auto advice = [](double used, double left, double arena, double pressure = 0) {
    Case c(false);
    c.part(Category::cpu) = 410'000;
    c.builder.sample("process rss bytes", 100, used).sample("memory available bytes", 100, left);
    c.builder.raw().program["memory"]["arena_bytes"] = arena;
    c.analysis.contention.memory_pressure = pressure;
    EXPECT_EQ(c.finding("tiny-batch")->flag.empty(),
              c.finding("tiny-batch")->advice.find("this machine's memory") != std::string::npos);
    return c.finding("tiny-batch")->flag;
  };
  EXPECT_EQ(advice(1e9, 9e9, 1e9), "--batch 256");
  EXPECT_EQ(advice(9.1e9, 0.9e9, 0), "") << "memory-high asks for a smaller one";
  EXPECT_EQ(advice(5e9, 5e9, 4.6e9), "");
  EXPECT_EQ(advice(5e9, 5e9, 4.4e9), "--batch 256");
  EXPECT_EQ(advice(1e9, 9e9, 1e9, 0.05), "");
}

TEST(HostFindings, SmallMemoryAndASmallerBatchOfSeveralRanks) {
  Case c(false);
  c.builder.sample("process rss bytes", 100, 9.5 * (1 << 20))
      .sample("memory available bytes", 100, 0.5 * (1 << 20));
  EXPECT_EQ(c.finding("memory-high")->evidence, "9.50 MiB of 10.0 MiB (95.0 %)");
  const auto flag = [&](int global, int ranks) {
    c.options()["global_batch"] = global;
    c.builder.raw().stamp["ranks"] = ranks;
    return c.finding("memory-high")->flag;
  };
  EXPECT_EQ(flag(384, 3), "--global-batch 192");
  EXPECT_EQ(flag(381, 3), "--global-batch 189") << "three ranks share 190 unevenly";
  EXPECT_EQ(flag(3, 3), "");
}

TEST(HostFindings, ClockThrottling) {
  Case c;
  const auto sample = [&](double at, double mask) {
    c.builder.sample("gpu 0 throttle reasons", at, mask);
  };
  sample(10, 4);
  for (int i = 0; i < 10; ++i) sample(20 + i, 1);  // idle is no reason
  EXPECT_FALSE(c.finding("clock-throttling"));     // 1 in 11
  sample(40, 4);
  ASSERT_TRUE(c.finding("clock-throttling"));
  EXPECT_THAT(c.finding("clock-throttling")->text, HasSubstr("to stay within its power limit"));
  sample(50, 0x40);
  EXPECT_THAT(c.finding("clock-throttling")->text, HasSubstr("throttled its clocks"));
  EXPECT_THAT(c.finding("clock-throttling")->advice, HasSubstr("check cooling"));
  EXPECT_THAT(c.finding("clock-throttling")->evidence, HasSubstr("power cap, hardware thermal"));
  EXPECT_EQ(c.finding("clock-throttling")->gain_ns, 0);
  c.builder.sample("gpu 0 sm clock MHz", 20, 1485);
  c.builder.raw().stamp["gpus"] = Json::array({{{"max_sm_clock_mhz", 1980}}});
  EXPECT_DOUBLE_EQ(c.finding("clock-throttling")->gain_most_ns, 250'000);
  EXPECT_DOUBLE_EQ(c.finding("clock-throttling")->gain_ns, 125'000) << "the highest may never be";
}

// Ten steps of 1 ms, each with a range of `us`.
Case with_range(const char* name, double us, bool gpu = false) {
  Case c(gpu);
  for (int i = 0; i < 10; ++i) c.builder.span(Kind::range, name, 1000 * i, 1000 * i + us);
  return c;
}

TEST(HostFindings, SlowObservers) {
  EXPECT_FALSE(with_range("observers", 50).finding("slow-observers"));
  Case c = with_range("observers", 51);
  ASSERT_TRUE(c.finding("slow-observers"));
  EXPECT_EQ(c.finding("slow-observers")->flag, "--log-every 100");
  EXPECT_NEAR(c.finding("slow-observers")->gain_ns, 45'900, 1);
  c.options()["log_every"] = 1000;
  EXPECT_EQ(c.finding("slow-observers")->flag, "");
}

// 2 ms between the fifth and the sixth of ten steps, in which observers run as well.
TEST(HostFindings, ObserversOfAnEvaluationAreOfNoStep) {
  Case c(false);
  for (int i = 0; i < 10; ++i) c.builder.span(Kind::range, "observers", 1000 * i, 1000 * i + 51);
  const double gain_ns = c.finding("slow-observers")->gain_ns;
  const auto later = [](std::uint64_t& ns) {
    if (ns >= SessionBuilder::at(5000)) ns += 2'000'000;
  };
  for (Step& step : c.builder.raw().steps)
    later(step.begin_ns), step.end_ns = step.begin_ns + 1'000'000;
  for (Span& span : c.builder.raw().spans) later(span.begin_ns), later(span.end_ns);
  c.builder.raw().windows.back().end_ns += 2'000'000;
  c.builder.span(Kind::range, "evaluation", 5000, 7000).span(Kind::range, "observers", 6500, 7000);
  ASSERT_TRUE(c.finding("slow-observers"));
  EXPECT_DOUBLE_EQ(c.finding("slow-observers")->gain_ns, gain_ns);
}

TEST(HostFindings, TheObserverThatTakesMostIsNamed) {
  const auto with = [](const char* part) {
    Case c = with_range("observers", 100);
    for (int i = 0; i < 10; ++i) c.builder.span(Kind::range, part, 1000 * i, 1000 * i + 60);
    return *c.finding("slow-observers");
  };
  EXPECT_THAT(with("other").evidence, Not(HasSubstr("most of it")));
  EXPECT_THAT(with("tensorboard").evidence, HasSubstr("most of it tensorboard"));
  EXPECT_EQ(with("metrics.jsonl").flag, "--log-every 100");
  EXPECT_EQ(with("progress line").flag, "") << "its lines are by time";
  EXPECT_THAT(with("progress line").advice, HasSubstr("2> train.log"));
}

TEST(HostFindings, ObserversBesideTheKernelsOfADevice) {
  Case c = with_range("observers", 100, true);
  c.part(Category::kernel) = 0.85e6;
  c.part(Category::other) = 0.10e6;
  c.part(Category::cpu) = 0.05e6;
  EXPECT_FALSE(c.finding("slow-observers")) << "they run beside kernels, for all but 50 us";
  c.part(Category::cpu) = 0.07e6;
  EXPECT_NEAR(c.finding("slow-observers")->gain_ns, 63'000, 1);
}

TEST(HostFindings, StatisticsAtEachStep) {
  Case c;
  c.analysis.work.steps = 10;
  c.analysis.work.calls = {{.op = "activation_statistics", .total_ns = 200'000},
                           {.op = "update_statistics", .total_ns = 200'000},
                           {.op = "linear", .total_ns = 9'000'000}};
  EXPECT_FALSE(c.finding("statistics")) << "not asked for";
  c.options()["stats_every"] = 1;
  const auto finding = c.finding("statistics");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--stats-every 10");
  EXPECT_NEAR(finding->gain_ns, 36'000, 1);
  c.analysis.work.calls[0].total_ns = 100'000;
  EXPECT_FALSE(c.finding("statistics"));
}

TEST(HostFindings, SlowCheckpoints) {
  EXPECT_FALSE(with_range("checkpoint", 100).finding("slow-checkpoints"));
  Case c = with_range("checkpoint", 101);
  ASSERT_TRUE(c.finding("slow-checkpoints"));
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "");  // each epoch's alone
  c.options()["checkpoint_every"] = 50;
  EXPECT_EQ(c.finding("slow-checkpoints")->flag, "--checkpoint-every 200");
  // Three quarters of 101 us per step, though no step itself gets shorter.
  EXPECT_NEAR(c.finding("slow-checkpoints")->gain_ns, 75'750, 1);
}

TEST(HostFindings, LongEvaluation) {
  EXPECT_FALSE(with_range("evaluation", 250).finding("long-evaluation"));
  EXPECT_TRUE(with_range("evaluation", 251).finding("long-evaluation"));
}

TEST(HostFindings, OptionsThatAreSlow) {
  Case c(false);
  c.analysis.work.calls = {{.title = "conv1/conv", .op = "conv", .ns = 1e5}};
  EXPECT_FALSE(c.finding("slow-option"));
  c.options()["exact_math"] = true;
  EXPECT_THAT(c.finding("slow-option")->advice, HasSubstr("--exact-math"));
  c.analysis.work.calls[0].op = "linear";
  EXPECT_FALSE(c.finding("slow-option")) << "products are the same";
  c.options()["device"] = "ref";
  EXPECT_EQ(c.finding("slow-option")->flag, "--device cpu");
}

TEST(HostFindings, FusionsThatAreOff) {
  Case c(false);
  c.options()["no_fuse"] = Json::array();
  EXPECT_FALSE(c.finding("slow-option"));
  c.options()["no_fuse"] = {"conv+relu", "updates"};
  const auto finding = c.finding("slow-option");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->evidence, "--no-fuse conv+relu --no-fuse updates");
  EXPECT_THAT(finding->advice, HasSubstr("leave out --no-fuse"));
  for (const char* const saved : {"could be fused", "saves the bytes"})  // not all do in each model
    EXPECT_THAT(finding->text + finding->advice, Not(HasSubstr(saved)));
  Case gpu;
  gpu.options()["no_fuse"] = {"updates"};
  EXPECT_FALSE(gpu.finding("slow-option"));
}

TEST(HostFindings, InstructionsThatTheEnvironmentLimits) {
  Case c(false);
  Json& cpu = c.builder.raw().stamp["cpu"];
  cpu["instruction_set"] = "AVX-512 with AMX";
  EXPECT_FALSE(c.finding("slow-option"));
  cpu["instruction_set"] = "SSE4.1 by WARPSTEP_CPU_ISA, of AVX-512 with AMX";
  const auto finding = c.finding("slow-option");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("to SSE4.1; the CPU has AVX-512 with AMX"));
  EXPECT_THAT(finding->advice, HasSubstr("unset WARPSTEP_CPU_ISA"));
}

TEST(HostFindings, ArithmeticIn32BitsOnACpuThatHasBf16) {
  const auto found = [](const char* set, const char* precision, const char* bound, double share) {
    Case c(false);
    c.builder.raw().stamp["cpu"]["instruction_set"] = set;
    c.options()["precision"] = precision;
    c.analysis.work.calls = {{.op = "conv.dgrad", .share = share, .bound = bound},
                             {.op = "relu", .share = 0.5, .bound = "compute"}};
    return c.finding("half-precision");
  };
  const auto finding = found("AVX-512 with AVX512_BF16", "fp32", "compute", 0.4);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--precision bf16");
  EXPECT_THAT(finding->evidence, HasSubstr("400 us of 1.00 ms per step (40.0 %)"));
  EXPECT_THAT(finding->evidence, HasSubstr("has AVX512_BF16"));
  EXPECT_THAT(finding->advice, HasSubstr("results change"));
  EXPECT_NEAR(finding->gain_least_ns, 4e4, 1);
  EXPECT_NEAR(finding->gain_most_ns, 20e4, 1);
  EXPECT_NEAR(found("AVX-512 with AMX", "fp32", "compute", 0.4)->gain_most_ns, 28e4, 1);
  EXPECT_FALSE(found("AVX-512 with AVX512_BF16", "fp32", "compute", 0.29));
  EXPECT_FALSE(found("AVX-512 with AVX512_BF16", "fp32", "memory", 0.4));
  EXPECT_FALSE(found("AVX-512 with AVX512_BF16", "bf16", "compute", 0.4));
  EXPECT_FALSE(found("AVX-512", "fp32", "compute", 0.4));
  EXPECT_FALSE(found("AVX2 by WARPSTEP_CPU_ISA, of AVX-512 with AMX", "fp32", "compute", 0.4));
  for (const char* const device : {"cuda", "ref"}) {
    Case other(std::string(device) == "cuda");
    other.builder.raw().stamp["cpu"]["instruction_set"] = "AVX-512 with AMX";
    other.options()["precision"] = "fp32";
    other.options()["device"] = device;
    other.analysis.work.calls = {{.op = "linear", .share = 0.9, .bound = "compute"}};
    EXPECT_FALSE(other.finding("half-precision")) << device;
    other.options()["device"] = "cpu";
    EXPECT_EQ(other.finding("half-precision").has_value(), std::string(device) == "ref");
  }
}

TEST(HostFindings, ThreadsThatSpinOnCoresOfWorkers) {
  Case c(false);
  c.builder.raw().loader["kernel_threads"] = 2;
  c.builder.raw().stamp["affinity"] = "0-1";
  c.analysis.loader.workers = 2;
  c.part(Category::core_wait) = 30'000;
  c.part(Category::data) = 21'000;
  EXPECT_FALSE(c.finding("slow-option"));
  c.builder.raw().stamp["openmp"]["OMP_WAIT_POLICY"] = "ACTIVE";
  const auto finding = c.finding("slow-option");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("2 cores for 2 threads of kernels and 2 workers"));
  EXPECT_THAT(finding->advice, HasSubstr("unset OMP_WAIT_POLICY"));
  EXPECT_EQ(finding->gain_most_ns, 51'000);
  c.builder.raw().stamp["affinity"] = "0-3";  // a core for each
  EXPECT_FALSE(c.finding("slow-option"));
  c.builder.raw().stamp["affinity"] = "0-1";
  c.part(Category::data) = 19'000;
  EXPECT_FALSE(c.finding("slow-option"));
}

TEST(HostFindings, WhatChangesResultsComesLast) {
  Case c(false);
  c.builder.raw().stamp["cpu"]["instruction_set"] = "AVX-512 with AMX";
  c.options()["precision"] = "fp32";
  c.options()["no_fuse"] = {"updates"};  // whose gain is not known
  c.analysis.work.calls = {{.op = "conv", .share = 0.9, .bound = "compute"}};
  EXPECT_THAT(testing::keys(c.findings()), ::testing::ElementsAre("slow-option", "half-precision"));
}

TEST(HostFindings, RecomputingThoughMemoryHasRoom) {
  Case c(false);
  c.builder.sample("process rss bytes", 100, 4e9).sample("memory available bytes", 100, 6e9);
  c.builder.raw().program["memory"]["arena_bytes"] = 1e9;
  EXPECT_FALSE(c.finding("needless-recompute"));
  Json& without = c.builder.raw().loader["without_recompute"];
  without = {{"arena_bytes", 5.9e9}, {"flops_saved", 0.25}};
  const auto finding = c.finding("needless-recompute");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->advice, "leave out --recompute");
  EXPECT_NEAR(finding->gain_most_ns, 2.5e5, 1);
  EXPECT_NEAR(finding->gain_least_ns, 1.25e5, 1);
  without["flops_saved"] = 4;  // all of a step, at least and at most, is no range
  EXPECT_EQ(c.finding("needless-recompute")->gain_ns, 1e6);
  EXPECT_EQ(c.finding("needless-recompute")->gain_most_ns, 0);
  without["arena_bytes"] = 6.1e9;  // with which it would be 9.1 of 10 GB
  EXPECT_FALSE(c.finding("needless-recompute"));
}

TEST(HostFindings, ChecksOfEveryCall) {
  Case c(false);
  EXPECT_FALSE(c.finding("check-numerics"));
  c.options()["check_numerics"] = true;
  const auto finding = c.finding("check-numerics");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->advice, HasSubstr("leave out --check-numerics unless"));
  EXPECT_THAT(finding->evidence, HasSubstr("1.00 ms of 1.00 ms per step"));
  EXPECT_EQ(finding->gain_least_ns, 0);
  EXPECT_EQ(finding->gain_most_ns, 1e6);  // how much of it was not recorded
}

TEST(HostFindings, ASlowClock) {
  Case c(false);
  c.builder.raw().stamp["profiler"]["span_ns"] = 250;
  EXPECT_FALSE(c.finding("slow-clock"));
  c.builder.raw().stamp["profiler"]["span_ns"] = 60e3;
  ASSERT_TRUE(c.finding("slow-clock"));
  EXPECT_THAT(c.finding("slow-clock")->evidence, HasSubstr("takes 60.0 us"));
  EXPECT_THAT(c.finding("slow-clock")->advice, HasSubstr("clock source tsc"));
  EXPECT_FALSE(c.finding("slow-clock")->spoils_figures);
  c.analysis.trust.overhead_share = 0.3;
  EXPECT_TRUE(c.finding("slow-clock")->spoils_figures);
}

}  // namespace
}  // namespace warpstep::profiler

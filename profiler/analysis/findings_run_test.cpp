#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;
using ::testing::Not;

// 300 steps of 1 ms, the later half of `later_us`, and what they wait. The window has 8 to 57.
template <class WaitUs>
Case with_waits(WaitUs wait_us, double later_us = 1000) {
  Case c(false);
  c.builder.raw().steps.clear();
  c.builder.raw().windows.clear();
  double now = 0, begin = 0, end = 0;
  for (std::uint64_t step = 1; step <= 300; ++step) {
    const double wait = wait_us(step), own = step > 150 ? later_us : 1000;
    if (step == 8) begin = now;
    c.builder.step(step, now, now + own + wait, own, wait);
    now += own + wait;
    if (step == 57) end = now;
  }
  c.builder.window(8, 57, begin, end).span(Kind::call, "c", begin, end);
  c.analysis.run = {.wall_ns = 1000 * now, .steps = 300};
  return c;
}

TEST(OutsideWaits, AreFoundWhereTheWindowHasNone) {
  const auto slow = [](std::uint64_t step) { return step > 180 && step <= 196 ? 135e3 : 0.0; };
  Case c = with_waits(slow);
  const std::vector<Finding> findings = c.findings();
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].key, "outside-waits");
  EXPECT_NEAR(findings[0].run_gain_ns, 16 * 135e6, 1e6);
  EXPECT_THAT(findings[0].evidence, HasSubstr("16 steps (181 to 196) waited longest, at most 135 "
                                              "ms"));
  EXPECT_THAT(findings[0].advice, HasSubstr("--profile-schedule skip_first=178,active=20;"));
  EXPECT_EQ(findings[0].flag, "") << "recording saves nothing";
}

// What the CPUs 0 and 1, of which the run uses a tenth, were busy with until the 196th step, and
// that they were not afterwards.
void add_busy_cores(double percent, Case& c) {
  c.builder.raw().stamp["affinity"] = "0-1";
  c.analysis.contention.affinity_cores = 2;
  for (double at_us = 1e5; at_us < 4e6; at_us += 1e5)
    for (const char* const metric : {"cpu 0 %", "cpu 1 %", "process cpu %"})
      c.builder.sample(metric, at_us, metric[0] == 'p' ? 20 : at_us < 2.45e6 ? percent : 10);
}

// Workers that have no core are late, whichever file they read.
TEST(OutsideWaits, AreBlamedOnNoFilesWhereTheRunLackedCores) {
  const auto text = [](double busy, bool gpu = false) {
    Case c = with_waits([](std::uint64_t step) { return step > 180 && step <= 196 ? 135e3 : 0.0; });
    c.builder.raw().loader["slowest_samples"] = {{{"name", "a.png"}, {"ns", 3e7}}};
    add_busy_cores(busy, c);
    if (gpu) c.builder.gpu();
    const auto finding = c.finding("outside-waits");
    return finding->evidence + "; " + finding->advice;
  };
  EXPECT_THAT(text(100), HasSubstr("other programs took 90.0 % of the CPU then"));
  EXPECT_THAT(text(100), HasSubstr("stop the programs"));
  EXPECT_THAT(text(100), HasSubstr("--profile-schedule skip_first=178,active=20"));
  EXPECT_THAT(text(100), Not(HasSubstr("a.png")));
  EXPECT_THAT(text(15), HasSubstr("a.png"));
  EXPECT_THAT(text(15), Not(HasSubstr("programs")));
  EXPECT_THAT(text(100, true), HasSubstr("a.png"));
}

TEST(SlowerLater, IsNotForTheClocksWhereTheRunLackedCoresAllTheTime) {
  const auto advice = [](double busy, bool gpu = false, bool in_kernels = true) {
    Case c = with_waits([](std::uint64_t) { return 0.0; }, 1500);
    add_busy_cores(busy, c);
    if (gpu) c.builder.gpu();
    for (Step& step : c.builder.raw().steps)
      if (!in_kernels) std::swap(step.kernels_ns, step.cpu_ns);
    return c.finding("slower-later")->advice;
  };
  EXPECT_THAT(advice(100), HasSubstr("run where cores are free"));
  for (const std::string& other : {advice(15), advice(100, true), advice(100, false, false)})
    EXPECT_THAT(other, HasSubstr("look at clocks"));
}

// Others make the later steps slower, too: few of these wait.
TEST(OutsideWaits, AreFoundInARunWhoseStepsBecameSlower) {
  const auto slow = [](std::uint64_t step) { return step > 180 && step <= 196 ? 135e3 : 0.0; };
  Case c = with_waits(slow, 1500);
  ASSERT_TRUE(c.finding("slower-later"));
  EXPECT_TRUE(c.finding("outside-waits"));
}

TEST(OutsideWaits, OfADeviceThatComputesMeanwhileCostNothing) {
  Case c = with_waits([](std::uint64_t step) { return step > 180 && step <= 196 ? 900.0 : 0.0; });
  for (Step& step : c.builder.raw().steps) {
    step.end_ns = step.begin_ns + 1'000'000;
    step.kernels_ns -= step.data_ns;
  }
  EXPECT_TRUE(c.finding("outside-waits"));
  c.builder.gpu();
  EXPECT_FALSE(c.finding("outside-waits"));
}

TEST(OutsideWaits, AreNoFindingWhereAllStepsWaitAlike) {
  for (const auto& us : std::vector<double (*)(std::uint64_t)>{
           [](std::uint64_t) { return 0.0; }, [](std::uint64_t) { return 500.0; },
           [](std::uint64_t step) { return step % 10 == 0 ? 20e3 : 0.0; },
           [](std::uint64_t step) { return step < 6 ? 200e3 : 0.0; },      // start-up
           [](std::uint64_t step) { return step == 200 ? 5e3 : 0.0; },     // 1.6 % of the run
           [](std::uint64_t step) { return step > 200 ? 2000.0 : 0.0; }})  // slower-later
    EXPECT_FALSE(with_waits(us).finding("outside-waits")) << us(150) << " " << us(250);
  EXPECT_TRUE(with_waits([](std::uint64_t step) {
                return step == 200 ? 7e3 : 0.0;
              }).finding("outside-waits"));
  EXPECT_TRUE(with_waits([](std::uint64_t step) {
                return step > 200 ? 2000.0 : 0.0;
              }).finding("slower-later"));
}

}  // namespace
}  // namespace warpstep::profiler

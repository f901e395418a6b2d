#include <gmock/gmock.h>

#include <vector>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;

TEST(FindShortMemory, WhereTheKernelTakesPagesBack) {
  Case c(false);
  c.analysis.contention.seconds = 6;
  Contention& lost = c.analysis.contention;
  lost.memory_limit_bytes = 64 << 20;
  lost.memory_used_bytes = 60 << 20;
  lost.limit_hits_per_s = 1;
  lost.major_faults_per_s = 49;
  EXPECT_FALSE(c.finding("short-memory"));
  lost.major_faults_per_s = 50;
  auto finding = c.finding("short-memory");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("60 of the group's 64 MiB used"));
  EXPECT_THAT(finding->advice, HasSubstr("raise the group's memory limit"));
  EXPECT_EQ(finding->flag, "--batch 64");
  lost.memory_used_bytes = 4.0 * (1 << 20);  // it is cached files that reach the limit
  EXPECT_FALSE(c.finding("short-memory"));
  lost.memory_used_bytes = 60.0 * (1 << 20);
  lost.limit_hits_per_s = 0;  // faults of a first reading
  EXPECT_FALSE(c.finding("short-memory"));
  lost.memory_pressure = 0.05;
  EXPECT_TRUE(c.finding("short-memory"));
  lost.memory_pressure = 0.049;
  lost.swapped_pages_per_s = 9.9;
  EXPECT_FALSE(c.finding("short-memory"));
  lost.swapped_pages_per_s = 10;
  EXPECT_TRUE(c.finding("short-memory"));
}

// Without the group's own, the pressure is the machine's: of other groups, too.
TEST(FindShortMemory, IsNotThatOfOtherGroups) {
  Case c(false);
  Contention& lost = c.analysis.contention;
  lost.seconds = 6;
  lost.memory_pressure = 0.5;
  lost.is_machines_pressure = true;
  lost.available_bytes = 20.0 * (1 << 30);
  lost.major_faults_per_s = 0;
  EXPECT_FALSE(c.finding("short-memory"));
  lost.major_faults_per_s = 10;
  EXPECT_TRUE(c.finding("short-memory"));
  lost.major_faults_per_s = 0;
  lost.limit_hits_per_s = 1;
  EXPECT_TRUE(c.finding("short-memory"));
  lost.limit_hits_per_s = 0;
  lost.available_bytes = 100 << 20;
  EXPECT_TRUE(c.finding("short-memory"));
  lost.available_bytes = 20.0 * (1 << 30);
  lost.is_machines_pressure = false;
  EXPECT_TRUE(c.finding("short-memory"));
  lost.memory_pressure.reset();
  lost.swapped_pages_per_s = 1000;  // which is only known of the machine
  EXPECT_FALSE(c.finding("short-memory"));
  lost.major_faults_per_s.reset();
  EXPECT_TRUE(c.finding("short-memory"));
}

// A session of a second, in ten steps as a rule, with twenty samples of the process's own memory.
constexpr double mib = 1 << 20;
Case with_memory(double (*level)(int), const char* tier = "decoded",
                 const std::vector<double>& steps_us = std::vector<double>(10, 1e5)) {
  Case c(false);
  c.builder.raw().steps.clear();
  std::uint64_t number = 0;
  double at = 0;
  for (const double us : steps_us) {
    c.builder.step(++number, at, at + us, us);
    c.builder.raw().steps.back().epoch = number <= 5 ? 1 : 2;
    at += us;
  }
  c.builder.raw().loader["tier"] = tier;
  for (int i = 0; i < 20; ++i)
    c.builder.sample("process private bytes", 5e4 * i + 1, level(i) * mib);
  c.builder.sample("memory available bytes", 9.9e5, 100 * mib);
  return c;
}

TEST(FindMemoryGrowth, WhereItIsSteady) {
  const auto finding = with_memory([](int i) { return 200.0 + 4 * i; }).finding("memory-growth");
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->evidence, HasSubstr("MiB in 750 ms, steadily: 80.00 MiB/s"));
  EXPECT_THAT(finding->evidence, HasSubstr("100 MiB that are left last 1.25 s"));
  EXPECT_EQ(finding->gain_ns, 0);
  EXPECT_TRUE(finding->ends_run);
}

TEST(FindMemoryGrowth, IsNotOneBufferNorALittle) {
  EXPECT_FALSE(with_memory([](int i) { return i < 12 ? 200.0 : 260.0; }).finding("memory-growth"));
  EXPECT_FALSE(with_memory([](int i) { return 200.0 + i; }).finding("memory-growth"));
  EXPECT_FALSE(with_memory([](int i) { return 4000.0 + 4 * i; }).finding("memory-growth"));
  EXPECT_FALSE(with_memory([](int i) { return 400.0 - 4 * i; }).finding("memory-growth"));
}

// A step of a large model takes seconds, and the first one fills its gradients and moments.
TEST(FindMemoryGrowth, IsNotTheFirstStep) {
  const auto filling = [](int i) { return i < 16 ? 200.0 + 20 * i : 520.0; };
  EXPECT_FALSE(with_memory(filling, "decoded", {8e5, 2e5}).finding("memory-growth"));
  const auto leaking = [](int i) { return 200.0 + 8 * i; };
  EXPECT_TRUE(with_memory(leaking, "decoded", {2e5, 8e5}).finding("memory-growth"));
  EXPECT_FALSE(with_memory(leaking, "decoded", {1e6}).finding("memory-growth"));
}

TEST(FindMemoryGrowth, IsNotATierThatFills) {
  const auto filling = [](int i) { return i < 10 ? 200.0 + 20 * i : 400.0; };
  EXPECT_FALSE(with_memory(filling, "mapped").finding("memory-growth"));
  const auto leaking = [](int i) { return 200.0 + 8 * i; };
  EXPECT_TRUE(with_memory(leaking, "mapped").finding("memory-growth"));
}

}  // namespace
}  // namespace warpstep::profiler

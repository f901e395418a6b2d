// A window gives what ran on the device during it, and nothing else.
#include "profiler/sources/cupti_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "profiler/sources/cupti_testing_windows.h"

namespace warpstep::profiler {
namespace {

using namespace testing;

TEST(CuptiTrace, AWindowOfEverything) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  trace->begin();
  cupti.launch("_Z4gemmPfi");
  cupti.copy(1, 2, 3, 50'000);
  cupti.copy_between_devices(1000);
  cupti.set(4096);
  cupti.synchronize_stream();
  cupti.stream_wait();
  cupti.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL);
  cupti.call(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020);
  cupti.call(CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020);
  const Traced traced = trace->end();
  EXPECT_EQ(traced.notes, std::vector<std::string>());
  std::map<What, int> count;
  for (const Activity& a : traced.activities) ++count[a.what];
  EXPECT_EQ(count, (std::map<What, int>{{What::kernel, 1},
                                        {What::copy, 2},
                                        {What::set, 1},
                                        {What::api, 6},
                                        {What::sync, 1},
                                        {What::overhead, 1}}));
  EXPECT_EQ(name(of(traced, What::api)[0]), "cudaLaunchKernel");
  for (const Activity& a : of(traced, What::api))
    EXPECT_EQ(a.stream, static_cast<std::uint32_t>(::gettid()));
  EXPECT_EQ(of(traced, What::sync)[0].stream, static_cast<std::uint32_t>(::gettid()));
  EXPECT_TRUE(std::ranges::is_sorted(traced.activities, {}, &Activity::start_ns));
  EXPECT_EQ(traced.clocks.size(), 2U);
  EXPECT_EQ(traced.losses.activities, 0U);
  EXPECT_EQ(cupti.bad_buffers + cupti.dirty_buffers, 0);
}

TEST(CuptiTrace, TimesAreOfTheMonotonicClock) {
  FakeCupti cupti;
  cupti.drift = 40e-6;
  const auto trace = open(cupti);
  trace->begin();
  cupti.pass(1'000'000'000);
  const std::uint64_t before = cupti.monotonic_ns();
  cupti.launch({.lasts_ns = 5000});
  cupti.pass(2'000'000'000);
  const Traced traced = trace->end();
  const Activity kernel = of(traced, What::kernel).at(0);
  EXPECT_NEAR(static_cast<double>(kernel.start_ns), static_cast<double>(before + 300), 2);
  EXPECT_NEAR(static_cast<double>(kernel.end_ns - kernel.start_ns), 5000, 2);
}

TEST(CuptiTrace, OnlyWindowsAreRecorded) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  cupti.launch("_Z6beforev");
  EXPECT_FALSE(cupti.any_enabled());
  trace->begin();
  cupti.launch("_Z5firstv");
  const Traced first = trace->end();
  EXPECT_FALSE(cupti.any_enabled());
  cupti.launch("_Z7betweenv");
  cupti.pass(50'000'000);
  trace->begin();
  cupti.launch("_Z6secondv");
  const Traced second = trace->end();
  ASSERT_EQ(of(first, What::kernel).size(), 1U);
  EXPECT_EQ(name(of(first, What::kernel)[0]), "first()");
  ASSERT_EQ(of(second, What::kernel).size(), 1U);
  EXPECT_EQ(name(of(second, What::kernel)[0]), "second()");
  EXPECT_EQ(cupti.subscriptions, 1);
  EXPECT_TRUE(trace->end().activities.empty());  // no window
}

// A buffer with an incomplete record arrives in the next window: its records are counted as lost.
TEST(CuptiTrace, CountsRecordsThatArriveTooLate) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  trace->begin();
  cupti.launch("_Z5firstv");
  cupti.faults.hold_back = true;
  EXPECT_TRUE(trace->end().activities.empty());
  cupti.faults.hold_back = false;
  cupti.pass(50'000'000);
  trace->begin();
  cupti.launch("_Z6secondv");
  const Traced second = trace->end();
  ASSERT_EQ(of(second, What::kernel).size(), 1U);
  EXPECT_EQ(second.losses.activities, 2U);
  ASSERT_EQ(second.notes.size(), 1U);
  EXPECT_EQ(second.notes[0], "2 records of an earlier window arrived too late.");
}

TEST(CuptiTrace, ReusesBuffers) {
  FakeCupti cupti;
  const auto trace = open(
      cupti, {.buffers = {.bytes = 1024, .count = 400}, .between_readings = std::chrono::hours(1)});
  for (int window = 0; window < 3; ++window) {
    trace->begin();
    for (int i = 0; i < 500; ++i) cupti.launch("_Z4gemmPfi");
    const Traced traced = trace->end();
    EXPECT_EQ(of(traced, What::kernel).size(), 500U);
    EXPECT_EQ(traced.losses.activities, 0U);
  }
  EXPECT_EQ(cupti.dirty_buffers, 0);
}

TEST(CuptiTrace, WaitsForEveryContext) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  for (const std::uintptr_t context : {1, 2, 3}) cupti.create_context(context);
  cupti.destroy_context(2);
  trace->begin();
  trace->end();
  EXPECT_EQ(cupti.synchronized, (std::vector<CUcontext>{reinterpret_cast<CUcontext>(1),
                                                        reinterpret_cast<CUcontext>(3)}));
}

TEST(CuptiTrace, OneAtATime) {
  FakeCupti cupti;
  auto trace = open(cupti);
  EXPECT_EQ(open_trace(cupti.api(), {}).trace, nullptr);
  trace->begin();
  trace.reset();  // in its window
  EXPECT_FALSE(cupti.any_enabled());
  EXPECT_EQ(cupti.subscriptions, 0);
  trace = open(cupti);
  EXPECT_NE(trace, nullptr);
}

}  // namespace
}  // namespace warpstep::profiler

// When something fails in a window, training continues and a note says what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/core/record.h"
#include "profiler/sources/cupti_testing.h"
#include "profiler/sources/cupti_trace.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::FakeCupti;
using testing::FakeGraph;
using ::testing::HasSubstr;

const record::Name conv("conv1", Kind::call);

constexpr TraceSettings fault_settings{.between_readings = std::chrono::hours(1)};

OpenedTrace open_faulty(const FakeCupti& cupti, const TraceSettings& how = fault_settings) {
  return open_trace(cupti.api(), {}, how);
}

std::size_t kernels(const Traced& traced) {
  return static_cast<std::size_t>(
      std::ranges::count(traced.activities, What::kernel, &Activity::what));
}

// A window of `count` launches.
Traced window(FakeCupti& cupti, DeviceTrace& trace, int count = 3) {
  trace.begin();
  for (int i = 0; i < count; ++i) {
    const record::Span span(conv, 2);
    cupti.launch("_Z4gemmPfi");
  }
  return trace.end();
}

TEST(CuptiFaults, ReportsMissingFeatures) {
  FakeCupti cupti;
  cupti.faults.enable_callback = CUPTI_ERROR_UNKNOWN;
  cupti.faults.set_attribute = CUPTI_ERROR_UNKNOWN;
  cupti.faults.set_thread_id_type = CUPTI_ERROR_NOT_SUPPORTED;
  const OpenedTrace opened = open_faulty(cupti);
  ASSERT_NE(opened.trace, nullptr);
  EXPECT_THAT(
      opened.why,
      AllOf(HasSubstr("recorded in part: kernels of CUDA graphs are not assigned"),
            HasSubstr("the threads of launches are unknown"), HasSubstr("costs more time")));
  EXPECT_EQ(kernels(window(cupti, *opened.trace)), 3U);
}

// As drivers were that reported only graphs made while kernels were recorded.
TEST(CuptiFaults, NotesGraphsWithoutRecords) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  FakeGraph graph;
  cupti.capture(graph, "_Z4gemmPfi");
  const FakeGraph executable = cupti.instantiate(graph);
  opened.trace->begin();
  cupti.launch(executable);
  cupti.faults.no_graphs = true;
  for (int i = 0; i < 2; ++i) cupti.launch(executable);
  const Traced traced = opened.trace->end();
  EXPECT_EQ(traced.losses.activities, 2U);
  EXPECT_THAT(traced.notes, Contains(AllOf(HasSubstr("2 of 3 graph launches have no record"),
                                           HasSubstr("--profile deep --no-graph"))));
}

TEST(CuptiFaults, NoMoreListeners) {
  FakeCupti cupti;
  static const record::Listener others[4]{
      {[](std::uint32_t, Kind, std::uint64_t) noexcept {}, [](Kind) noexcept {}},
      {[](std::uint32_t, Kind, std::uint64_t) noexcept {}, [](Kind) noexcept {}},
      {[](std::uint32_t, Kind, std::uint64_t) noexcept {}, [](Kind) noexcept {}},
      {[](std::uint32_t, Kind, std::uint64_t) noexcept {}, [](Kind) noexcept {}}};
  for (const record::Listener& other : others) ASSERT_TRUE(record::add_listener(other));
  {
    const OpenedTrace opened = open_faulty(cupti);
    ASSERT_NE(opened.trace, nullptr);
    EXPECT_THAT(opened.why, HasSubstr("not assigned to calls"));
    EXPECT_EQ(kernels(window(cupti, *opened.trace)), 3U);
  }
  for (const record::Listener& other : others) record::remove_listener(other);
}

TEST(CuptiFaults, AKindThatCannotBeEnabled) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.enable[CUPTI_ACTIVITY_KIND_MEMCPY] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  opened.trace->begin();
  cupti.launch("_Z4gemmPfi");
  cupti.copy(1, 2, 3, 1000);
  const Traced traced = opened.trace->end();
  EXPECT_EQ(kernels(traced), 1U);
  EXPECT_THAT(traced.notes, ::testing::ElementsAre(
                                AllOf(HasSubstr("Copies are not recorded: cuptiActivityEnable"),
                                      HasSubstr("CAP_SYS_ADMIN"))));
  EXPECT_EQ(std::ranges::count(traced.activities, What::copy, &Activity::what), 0);
  cupti.faults.enable.clear();
  EXPECT_TRUE(window(cupti, *opened.trace).notes.empty());
}

TEST(CuptiFaults, NoKindAtAll) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  for (int kind = 0; kind < 60; ++kind)
    cupti.faults.enable[static_cast<CUpti_ActivityKind>(kind)] = CUPTI_ERROR_UNKNOWN;
  const Traced traced = window(cupti, *opened.trace);
  EXPECT_EQ(kernels(traced), 0U);
  EXPECT_EQ(traced.notes.size(), 8U);
}

TEST(CuptiFaults, DroppedRecordsAreCounted) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.dropped = 1000;  // before the window: does not count
  opened.trace->begin();
  cupti.faults.dropped = 17;
  const Traced traced = opened.trace->end();
  EXPECT_EQ(traced.losses.activities, 17U);
  EXPECT_THAT(traced.notes, Contains("CUPTI dropped 17 records."));
  EXPECT_EQ(window(cupti, *opened.trace).losses.activities, 0U);
}

TEST(CuptiFaults, NoTimes) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.no_times = true;
  const Traced traced = window(cupti, *opened.trace, 5);
  EXPECT_EQ(kernels(traced), 0U);
  EXPECT_EQ(traced.losses.without_times, 5U);
  EXPECT_THAT(traced.notes, Contains(HasSubstr("5 activities have no times")));
}

TEST(CuptiFaults, AFlushThatFails) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.flush = CUPTI_ERROR_UNKNOWN;
  const Traced traced = window(cupti, *opened.trace);
  EXPECT_EQ(kernels(traced), 0U);
  EXPECT_THAT(traced.notes, Contains(HasSubstr("Records are missing: cuptiActivityFlushAll gave")));
  EXPECT_FALSE(cupti.any_enabled());
  cupti.faults.flush = CUPTI_SUCCESS;
}

TEST(CuptiFaults, ADeviceThatIsLost) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.create_context(1);
  cupti.faults.synchronize = CUDA_ERROR_ILLEGAL_ADDRESS;
  const Traced traced = window(cupti, *opened.trace);
  EXPECT_EQ(kernels(traced), 3U);
  EXPECT_THAT(traced.notes, Contains(HasSubstr("cuCtxSynchronize gave 700")));
}

TEST(CuptiFaults, BuffersRunOut) {
  FakeCupti cupti;
  // Nothing reads while the fake fills: it requests the third buffer under one launch's lock, but
  // may get one back later, so only consistency is checked.
  const OpenedTrace opened = open_faulty(
      cupti, {.buffers = {.bytes = 256, .count = 1}, .between_readings = std::chrono::hours(1)});
  opened.trace->begin();
  for (int i = 0; i < 200; ++i) cupti.launch("_Z4gemmPfi");
  const Traced traced = opened.trace->end();
  // A kernel and its call fill a buffer; each record without a buffer was dropped and counted.
  EXPECT_EQ(traced.activities.size() + traced.losses.activities, 400U);
}

TEST(CuptiFaults, NoBufferAtAll) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(
      cupti, {.buffers = {.bytes = 4096, .count = 0}, .between_readings = std::chrono::hours(1)});
  const Traced traced = window(cupti, *opened.trace, 10);
  EXPECT_TRUE(traced.activities.empty());
  EXPECT_EQ(traced.losses.activities, 30U);  // each a kernel, its call and the call's id
  EXPECT_THAT(traced.notes, Contains(HasSubstr("CUPTI asked 30 times for more buffers than 0")));
}

TEST(CuptiFaults, RecordsOfAnUnknownKind) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  opened.trace->begin();
  cupti.launch("_Z4gemmPfi");
  const std::uint64_t unknown = 4711;
  cupti.put_raw(unknown);
  const Traced traced = opened.trace->end();
  EXPECT_EQ(kernels(traced), 1U);
  EXPECT_EQ(traced.losses.activities, 1U);
  EXPECT_THAT(traced.notes, Contains(HasSubstr("8 bytes of CUPTI's records, in 1 buffers")));
}

TEST(CuptiFaults, NamesThatCuptiDoesNotKnow) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.callback_name = CUPTI_ERROR_UNKNOWN;
  opened.trace->begin();
  cupti.launch(FakeCupti::Launch{.kernel = nullptr});
  const Traced traced = opened.trace->end();
  const auto names = record::names();
  EXPECT_EQ(names[traced.activities.at(0).name].text, "runtime call 211");
  EXPECT_EQ(names[traced.activities.at(1).name].text, "unknown kernel");
}

TEST(CuptiFaults, NoTimestamp) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  cupti.faults.timestamp = CUPTI_ERROR_NOT_INITIALIZED;
  const std::uint64_t before = cupti.monotonic_ns();
  const Traced traced = window(cupti, *opened.trace, 1);  // the system's clock is used instead
  EXPECT_EQ(traced.clocks.at(0).device_ns, 0U);
  EXPECT_EQ(traced.activities.at(0).start_ns, before);
}

TEST(CuptiFaults, ASystemClockThatIsSet) {
  FakeCupti cupti;
  const OpenedTrace opened = open_faulty(cupti);
  opened.trace->begin();
  const std::uint64_t before = cupti.monotonic_ns();
  cupti.launch("_Z4gemmPfi");
  cupti.pass(10'000'000);
  cupti.set_system_clock(3'600'000'000'000);
  cupti.pass(10'000'000);
  const std::uint64_t after = cupti.monotonic_ns();
  cupti.launch("_Z4gemmPfi");
  const Traced traced = opened.trace->end();
  EXPECT_THAT(traced.notes, Contains(HasSubstr("clock was set by 3600000.000 ms")));
  EXPECT_EQ(traced.activities.at(0).start_ns, before);
  EXPECT_EQ(traced.activities.at(2).start_ns, after);
}

TEST(CuptiFaults, ADumpThatCannotBeWritten) {
  FakeCupti cupti;
  {
    const OpenedTrace opened = open_trace(cupti.api(), {"/nowhere/there/dump"}, fault_settings);
    ASSERT_NE(opened.trace, nullptr);
    EXPECT_THAT(opened.why, HasSubstr("not dumped: /nowhere/there/dump: cannot create it"));
    EXPECT_EQ(kernels(window(cupti, *opened.trace)), 3U);
  }
  if (!std::ifstream("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const OpenedTrace opened = open_trace(cupti.api(), {"/dev/full"}, fault_settings);
  ASSERT_NE(opened.trace, nullptr);
  EXPECT_THAT(opened.why, HasSubstr("No space left on device"));
  EXPECT_EQ(kernels(window(cupti, *opened.trace)), 3U);
}

}  // namespace
}  // namespace warpstep::profiler

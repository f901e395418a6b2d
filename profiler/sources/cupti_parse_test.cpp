// Records built with CUPTI's structures become activities.
#include "profiler/sources/cupti_parse.h"

#include <gtest/gtest.h>

#include "engine/core/record.h"
#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler {
namespace {

using namespace testing;

std::string name(const Activity& activity) {
  return record::names()[activity.name].text;
}

TEST(CuptiParse, EveryFieldOfAKernel) {
  auto record = kernel(1000, 1500, 9);
  record.deviceId = 1;
  record.contextId = 2;
  record.streamId = 3;
  record.gridX = 4;
  record.gridY = 5;
  record.gridZ = 6;
  record.blockX = 7;
  record.blockY = 8;
  record.blockZ = 9;
  record.registersPerThread = 255;
  record.staticSharedMemory = 10;
  record.dynamicSharedMemory = 232448;
  record.graphNodeId = 0x500000007;
  record.graphId = 5;
  Bytes buffer;
  put(buffer, record);
  const Parsed parsed = parse(buffer);
  ASSERT_EQ(parsed.activities.size(), 1U);
  const Activity& a = parsed.activities[0];
  EXPECT_EQ(a.what, What::kernel);
  EXPECT_EQ(name(a), "gemm(float*, int)");
  EXPECT_EQ(record::names()[a.name].kind, Kind::kernel);
  EXPECT_EQ(std::pair(a.start_ns, a.end_ns), std::pair(std::uint64_t{1000}, std::uint64_t{1500}));
  EXPECT_EQ(std::tuple(a.device, a.context, a.stream, a.correlation), std::tuple(1U, 2U, 3U, 9U));
  EXPECT_EQ(a.grid, (std::array<std::uint32_t, 3>{4, 5, 6}));
  EXPECT_EQ(a.block, (std::array<std::uint32_t, 3>{7, 8, 9}));
  EXPECT_EQ(std::tuple(a.registers, a.smem_static, a.smem_dynamic), std::tuple(255, 10U, 232448U));
  EXPECT_EQ(a.graph_node, 0x500000007U);
  EXPECT_EQ(a.graph, 5U);
}

TEST(CuptiParse, CopiesAndSets) {
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = 4096;
  copy.start = 10;
  copy.end = 20;
  copy.graphNodeId = 7;
  CUpti_ActivityMemcpyPtoP4 peer{};
  peer.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.srcKind = peer.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  peer.bytes = 99;
  peer.start = 30;
  peer.end = 40;
  peer.correlationId = 5;
  CUpti_ActivityMemset4 set{};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.bytes = 12;
  set.start = 50;
  set.end = 60;
  set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  Bytes buffer;
  put(buffer, set);
  put(buffer, peer);
  put(buffer, copy);
  const Parsed parsed = parse(buffer);
  ASSERT_EQ(parsed.activities.size(), 3U);  // by start
  const Activity& first = parsed.activities[0];
  EXPECT_EQ(first.what, What::copy);
  EXPECT_EQ(name(first), "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(std::tuple(first.copy_kind, first.source_memory, first.target_memory, first.bytes),
            std::tuple(1, 2, 3, 4096U));
  EXPECT_EQ(first.graph_node, 7U);
  EXPECT_EQ(name(parsed.activities[1]), "Memcpy PtoP (Device -> Device)");
  EXPECT_EQ(parsed.activities[1].bytes, 99U);
  EXPECT_EQ(parsed.activities[1].correlation, 5U);
  EXPECT_EQ(parsed.activities[2].what, What::set);
  EXPECT_EQ(name(parsed.activities[2]), "Memset (Device)");
  EXPECT_EQ(parsed.activities[2].bytes, 12U);
}

TEST(CuptiParse, OneLaunchPerCorrelationInAnyOrder) {
  Bytes buffer;
  put(buffer, call(driver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 100, 1));  // also the runtime's
  put(buffer, kernel(500, 600, 1));
  put(buffer, call(runtime, launch_call, 90, 1));
  put(buffer, external(8, 1));
  put(buffer, call(driver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 200, 2));  // only the driver's
  put(buffer, kernel(700, 800, 2));
  put(buffer, call(runtime, CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, 300, 3));
  const Parsed parsed = parse(buffer);
  ASSERT_EQ(parsed.activities.size(), 4U);
  EXPECT_EQ(name(parsed.activities[0]), "cudaLaunchKernel");
  EXPECT_EQ(parsed.activities[0].what, What::api);
  EXPECT_EQ(parsed.activities[0].stream, 4242U);
  EXPECT_EQ(parsed.activities[0].external, 8U);
  EXPECT_EQ(name(parsed.activities[1]), "cuLaunchKernel");
  EXPECT_EQ(record::names()[parsed.activities[1].name].kind, Kind::host_api);
  EXPECT_EQ(parsed.activities[2].external, 8U);
  EXPECT_EQ(parsed.activities[3].external, 0U);
}

TEST(CuptiParse, TheCallOfANodeOverridesThatOfItsLaunch) {
  auto known = kernel(500, 600, 1);
  known.graphNodeId = 11;
  auto unknown = kernel(600, 700, 1);
  unknown.graphNodeId = 12;
  Bytes buffer;
  put(buffer, external(3, 1));
  put(buffer, known);
  put(buffer, unknown);
  const Parsed parsed = parse(buffer, {{11, 40}});
  EXPECT_EQ(parsed.activities[0].external, 41U);
  EXPECT_EQ(parsed.activities[1].external, 3U);
}

TEST(CuptiParse, WaitsHaveTheirThread) {
  CUpti_ActivitySynchronization2 sync{};
  sync.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  sync.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE;
  sync.start = 10;
  sync.end = 30;
  sync.correlationId = 6;
  auto of_stream = sync;
  of_stream.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  Bytes buffer;
  put(buffer, sync);
  put(buffer, of_stream);  // the host does not wait there
  put(buffer, call(runtime, CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020, 9, 6));
  const Parsed parsed = parse(buffer);
  ASSERT_EQ(parsed.activities.size(), 2U);
  EXPECT_EQ(parsed.activities[1].what, What::sync);
  EXPECT_EQ(name(parsed.activities[1]), "Event Synchronize");
  EXPECT_EQ(parsed.activities[1].stream, 4242U);
}

TEST(CuptiParse, OverheadAndWholeGraphs) {
  CUpti_ActivityOverhead3 overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  overhead.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  overhead.objectId.pt.threadId = 55;
  overhead.start = 10;
  overhead.end = 30;
  CUpti_ActivityGraphTrace2 graph{};
  graph.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  graph.start = 40;
  graph.end = 90;
  graph.graphId = 3;
  Bytes buffer;
  put(buffer, graph);
  put(buffer, overhead);
  overhead.overheadKind =
      static_cast<CUpti_ActivityOverheadKind>(0x7fff0000);  // of a later version
  put(buffer, overhead);
  const Parsed parsed = parse(buffer);
  ASSERT_EQ(parsed.activities.size(), 3U);
  EXPECT_EQ(name(parsed.activities[0]), "Activity Buffer Flush");
  EXPECT_EQ(parsed.activities[0].stream, 55U);
  EXPECT_EQ(parsed.activities[0].what, What::overhead);
  EXPECT_EQ(name(parsed.activities[1]), "Overhead");
  EXPECT_EQ(parsed.activities[2].what, What::graph);
  EXPECT_EQ(parsed.activities[2].graph, 3U);
}

}  // namespace
}  // namespace warpstep::profiler

// Records that a real driver wrote (NVIDIA H200, driver 580.159, CUPTI 13.0), cut from a run of
// cifar10cnn: the last two steps of an epoch, its evaluation and checkpoint, and the first two
// steps of the next one. The expected figures were counted in the file by another program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/core/record.h"
#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/device_fill.h"
#include "profiler/analysis/intervals.h"
#include "profiler/session/session.h"
#include "profiler/sources/device_trace.h"
#include "profiler/sources/replayed_session.h"
#include "tests/source_file.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr const char* recorded_dump = "profiler/testdata/cifar10cnn-h200.cupti";
constexpr std::size_t kernels_per_step = 36, sets_per_step = 4, evaluation_batches = 4;

class CuptiRecorded : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    traced = new Traced(replay_device_trace(testing_support::source_file(recorded_dump)));
  }
  static void TearDownTestSuite() {
    delete traced;
    traced = nullptr;
  }

  static std::vector<Activity> all(What what) {
    std::vector<Activity> found;
    std::ranges::copy_if(traced->activities, std::back_inserter(found),
                         [&](const Activity& activity) { return activity.what == what; });
    return found;
  }
  static std::string name(const Activity& activity) { return record::names()[activity.name].text; }
  static std::vector<Activity> graph_launches() {
    std::vector<Activity> launches = all(What::api);
    std::erase_if(launches, [](const Activity& a) { return name(a) != "cudaGraphLaunch"; });
    return launches;
  }
  static std::vector<Activity> kernels_of(const Activity& launch) {
    std::vector<Activity> kernels = all(What::kernel);
    std::erase_if(kernels, [&](const Activity& a) { return a.correlation != launch.correlation; });
    return kernels;
  }

  static Traced* traced;
};

Traced* CuptiRecorded::traced = nullptr;

TEST_F(CuptiRecorded, NothingIsLost) {
  EXPECT_EQ(traced->losses.activities, 0U);
  EXPECT_EQ(traced->losses.without_times, 0U);
  EXPECT_THAT(traced->notes, IsEmpty());
  EXPECT_EQ(traced->activities.size(), 539U);
}

// The record is older than the devices' chunk.
TEST_F(CuptiRecorded, ADeviceWithoutADescriptionHasAName) {
  ASSERT_EQ(traced->devices.size(), 1U);
  EXPECT_EQ(traced->devices[0].id, 0U);
  EXPECT_EQ(record::names()[traced->devices[0].name].text, "GPU");
}

// Four launches of the step; the third one comes after the evaluation and the checkpoint.
TEST_F(CuptiRecorded, AReplayedSessionHasTheGraphsAsSteps) {
  Session session = replayed_session(*traced);
  finish_session(session, "replayed");
  EXPECT_NO_THROW(refuse_impossible(session, "replayed"));
  ASSERT_EQ(session.steps.size(), 4U);
  ASSERT_EQ(session.windows.size(), 1U);
  EXPECT_EQ(session.windows[0].last_step, 4U);
  EXPECT_EQ(session.steps[1].begin_ns, session.steps[0].end_ns);
  EXPECT_GT(session.steps[2].begin_ns, session.steps[1].end_ns + 1'000'000);
  EXPECT_EQ(session.steps[2].other_ns, 0U);
  ASSERT_EQ(session.threads.size(), 1U);
  EXPECT_EQ(session.threads[0].system, 3213U);
  const Breakdown breakdown = break_down(session);
  EXPECT_TRUE(breakdown.from_spans);
  EXPECT_LT(breakdown.step_ns, 1e6);
  EXPECT_THAT(session.notes, Contains(HasSubstr("a step is what one graph did")));
}

TEST_F(CuptiRecorded, EachStepIsOneLaunch) {
  const std::vector<Activity> launches = graph_launches();
  ASSERT_EQ(launches.size(), 4U);
  EXPECT_EQ(all(What::kernel).size(), 4 * kernels_per_step + 11 * evaluation_batches);
  for (const Activity& launch : launches) {
    EXPECT_EQ(launch.stream, 3213U);  // the trainer's thread, by the kernel's number of it
    const std::vector<Activity> kernels = kernels_of(launch);
    ASSERT_EQ(kernels.size(), kernels_per_step);
    for (const Activity& kernel : kernels) {
      EXPECT_GE(kernel.start_ns, launch.start_ns);
      EXPECT_EQ(kernel.graph, kernels[0].graph);
      EXPECT_NE(kernel.graph_node, 0U);
    }
  }
  // One graph for each of the two buffers that a batch may be in.
  EXPECT_NE(kernels_of(launches[0])[0].graph, kernels_of(launches[1])[0].graph);
  EXPECT_EQ(kernels_of(launches[0])[0].graph, kernels_of(launches[2])[0].graph);
}

TEST_F(CuptiRecorded, NodesOfGraphsGiveTheCalls) {
  for (const Activity& launch : graph_launches()) {
    std::map<std::uint32_t, int> by_call;
    for (const Activity& kernel : kernels_of(launch)) ++by_call[kernel.external];
    EXPECT_EQ(by_call.size(), 30U);  // all of the step
    EXPECT_FALSE(by_call.contains(0));
    // conv3's gradient of the weights, call 20, is three kernels of cuDNN.
    EXPECT_THAT(by_call, Contains(Pair(21, 3)));
  }
  // Evaluations launch each kernel by itself, and outside of the step's calls.
  std::size_t others = 0;
  for (const Activity& kernel : all(What::kernel))
    if (kernel.graph_node == 0) {
      EXPECT_EQ(kernel.external, 0U);
      ++others;
    }
  EXPECT_EQ(others, 11 * evaluation_batches);
}

// Two lanes of the step and the graph's own stream: their kernels overlap, and their sum is more
// than the time in which any runs.
TEST_F(CuptiRecorded, KernelsOfSeveralStreamsOverlap) {
  const std::vector<Activity> kernels = kernels_of(graph_launches()[1]);
  std::set<std::uint32_t> streams;
  std::vector<Interval> times;
  std::uint64_t sum = 0;
  for (const Activity& kernel : kernels) {
    streams.insert(kernel.stream);
    times.push_back({kernel.start_ns, kernel.end_ns});
    sum += kernel.end_ns - kernel.start_ns;
  }
  EXPECT_THAT(streams, UnorderedElementsAre(15, 71, 73));
  EXPECT_NEAR(static_cast<double>(sum), 367'678, 40);  // each is rounded to our clock
  EXPECT_NEAR(static_cast<double>(total_ns(merged(times))), 280'447, 40);
}

// cublasLt launches its kernels through the driver in a way that leaves no record of the call.
TEST_F(CuptiRecorded, KernelsWithoutARecordedLaunchAreKept) {
  std::set<std::uint32_t> launched;
  for (const Activity& call : all(What::api)) launched.insert(call.correlation);
  std::map<std::string, int> silent;
  for (const Activity& kernel : all(What::kernel))
    if (!launched.contains(kernel.correlation)) ++silent[name(kernel)];
  EXPECT_THAT(silent, ElementsAre(Pair("nvjet_sm90_hsh_48x64_64x15_4x2_h_bz_relubias_TNN", 4),
                                  Pair("nvjet_sm90_hsh_8x64_64x16_2x2_h_bz_bias_TNN", 4)));
}

TEST_F(CuptiRecorded, CopiesHaveKindsAndBytes) {
  std::map<std::string, std::pair<int, std::uint64_t>> by_name;
  for (const Activity& copy : all(What::copy)) {
    auto& [count, bytes] = by_name[name(copy)];
    ++count;
    bytes += copy.bytes;
    EXPECT_EQ(copy.device, 0U);
    EXPECT_EQ(copy.graph_node, 0U);
  }
  // The checkpoint's 46 values; a batch of a resident set is its plan of rows.
  EXPECT_THAT(by_name,
              UnorderedElementsAre(Pair("Memcpy DtoH (Device -> Pageable)", Pair(46, 51'893'088U)),
                                   Pair("Memcpy HtoD (Pinned -> Device)", Pair(6, 6 * 7'680U))));
}

TEST_F(CuptiRecorded, SetsAreNodesOfTheGraphToo) {
  std::size_t in_graphs = 0;
  std::uint64_t bytes = 0;
  for (const Activity& set : all(What::set)) {
    in_graphs += set.graph_node != 0 ? 1 : 0;
    bytes += set.bytes;
  }
  EXPECT_EQ(in_graphs, 4 * sets_per_step);
  EXPECT_EQ(all(What::set).size(), 4 * sets_per_step + 2);
  EXPECT_EQ(bytes, 2'453'268U);
}

TEST_F(CuptiRecorded, TimesAreOfOurClockAndWithinTheWindow) {
  ASSERT_EQ(traced->clocks.size(), 3U);
  const std::uint64_t begin = traced->clocks.front().monotonic_ns,
                      end = traced->clocks.back().monotonic_ns;
  std::uint64_t before = 0;
  for (const Activity& activity : traced->activities) {
    EXPECT_GE(activity.start_ns, begin);
    EXPECT_LE(activity.end_ns, end);
    EXPECT_GE(activity.end_ns, activity.start_ns);
    EXPECT_GE(activity.start_ns, before);
    before = activity.start_ns;
  }
  // The second launch's first kernel, in the file at 1795658239907274794.
  const std::uint64_t start = kernels_of(graph_launches()[1])[0].start_ns - begin;
  EXPECT_NEAR(static_cast<double>(start), 1795658239907274794 - 1795658239894770770, 100);
}

TEST_F(CuptiRecorded, WaitsHaveTheirThread) {
  std::map<std::string, int> by_name;
  std::set<std::uint32_t> threads;
  for (const Activity& wait : all(What::sync)) {
    ++by_name[name(wait)];
    threads.insert(wait.stream);
  }
  EXPECT_THAT(by_name,
              UnorderedElementsAre(Pair("Event Synchronize", 17), Pair("Stream Synchronize", 54)));
  EXPECT_THAT(threads, UnorderedElementsAre(3213, 3299, 3300));  // trainer, both sets' copiers
}

// The last gradient of weights runs alone, on 31 thread blocks of 132 multiprocessors.
TEST_F(CuptiRecorded, ShowsCallsWithFewBlocks) {
  Session session;
  session.names = record::names();
  session.devices = {{.id = 0, .multiprocessors = 132}};
  session.activities = traced->activities;
  std::uint64_t number = 0;
  for (const Activity& launch : graph_launches()) {
    const std::vector<Activity> kernels = kernels_of(launch);
    session.steps.push_back({.step = ++number,
                             .begin_ns = kernels.front().start_ns,
                             .end_ns = kernels.back().end_ns + 1});
  }
  session.windows = {{.first_step = 1,
                      .last_step = number,
                      .begin_ns = session.steps.front().begin_ns,
                      .end_ns = session.steps.back().end_ns,
                      .complete = 1}};
  const DeviceFill fill = device_fill(session);
  ASSERT_GE(fill.calls.size(), 2U);
  EXPECT_EQ(fill.calls[0].call, 26);
  EXPECT_NEAR(fill.calls[0].ns, 54e3, 2e3);
  EXPECT_NEAR(fill.calls[0].blocks, 29, 1);  // and 2 of the sum of its parts
}

TEST_F(CuptiRecorded, NamesAndShapesAreThoseOfTheLibraries) {
  const std::vector<Activity> kernels = kernels_of(graph_launches()[0]);
  const auto find = [&](std::string_view part) {
    const auto at = std::ranges::find_if(kernels, [&](const Activity& kernel) {
      return name(kernel).find(part) != std::string::npos;
    });
    return at == kernels.end() ? Activity{} : *at;
  };
  const Activity update = find("warpstep::cuda::(anonymous namespace)::update_kernel<");
  EXPECT_EQ(update.grid, (std::array<std::uint32_t, 3>{4224, 1, 1}));
  EXPECT_EQ(update.block, (std::array<std::uint32_t, 3>{256, 1, 1}));
  EXPECT_EQ(update.registers, 40);
  // Nearly all that a block may ask for, 227 KiB.
  const Activity dgrad = find("sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc");
  EXPECT_EQ(dgrad.smem_dynamic, 231'424U);
  EXPECT_EQ(dgrad.registers, 168);
  EXPECT_THAT(dgrad.block, ElementsAre(384, 1, 1));
}

}  // namespace
}  // namespace warpstep::profiler

#include "profiler/analysis/critical_path.h"

#include <gtest/gtest.h>

#include <random>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/testing_goldens.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

// "data 10, cpu 5": edges with their lengths in us.
std::string edges_text(const CriticalPath& path) {
  std::string text;
  for (const PathEdge& edge : path.edges)
    text += (text.empty() ? "" : ", ") + edge.bound + " " +
            std::to_string((edge.end_ns - edge.begin_ns) / 1000);
  return text;
}

double share_ns(const CriticalPath& path, const std::string& bound) {
  for (const PathShare& share : path.shares)
    if (share.bound == bound) return share.ns;
  return 0;
}

TEST(CriticalPath, OfAHostIsItsThreadsTime) {
  SessionBuilder builder;
  builder.step(5, 0, 100)
      .window(5, 5, 0, 100)
      .span(Kind::wait, "data", 0, 30)
      .span(Kind::range, "in the wait", 10, 20)
      .span(Kind::range, "step", 35, 90)
      .span(Kind::call, "conv1", 40, 70)
      .span(Kind::host_api, "primitive", 45, 60)
      .span(Kind::copy, "gather", 75, 80);
  const CriticalPath path = critical_path(builder.build());
  EXPECT_EQ(path.step, 5U);
  EXPECT_EQ(edges_text(path), "data 30, idle 5, cpu 5, kernel 30, cpu 5, copy 5, cpu 10, idle 10");
  EXPECT_EQ(path.edges[3].what, "conv1");
  EXPECT_DOUBLE_EQ(share_ns(path, "kernel"), 30e3);
  ASSERT_FALSE(path.shares.empty());
  EXPECT_DOUBLE_EQ(path.shares[0].share, 0.3);
}

// Of each step the half without a core; the exchange keeps its share of that. All as in the
// breakdown.
TEST(CriticalPath, OfAHostHasTheWaitsForACore) {
  SessionBuilder builder;
  for (int i = 0; i < 3; ++i) {
    const double at = 100 * i;
    builder.step(static_cast<std::uint64_t>(i + 1), at, at + 100)
        .span(Kind::wait, "data", at, at + 10)
        .span(Kind::call, "conv1", at + 10, at + 70)
        .span(Kind::copy, "gather", at + 70, at + 80)
        .span(Kind::call, "bucket0/all_reduce", at + 80, at + 95)
        .span(Kind::counter, "core wait ns", at + 99, at + 99, 0, 40'000 + 10'000 * (i % 2));
  }
  builder.window(1, 3, 0, 300);
  const Session session = builder.build();
  const CriticalPath path = critical_path(session);
  const Breakdown breakdown = break_down(session);
  const auto part = [&](Category category) {
    return breakdown.mean[static_cast<std::size_t>(category)];
  };
  EXPECT_GT(part(Category::core_wait), 30e3);
  EXPECT_NEAR(share_ns(path, "core wait"), part(Category::core_wait), 2);
  EXPECT_NEAR(share_ns(path, "kernel"), part(Category::kernel) + part(Category::communication), 2);
  EXPECT_NEAR(share_ns(path, "data"), part(Category::data), 2);
  EXPECT_NEAR(share_ns(path, "cpu") + share_ns(path, "copy"), part(Category::cpu), 2);
  double sum = 0;
  for (const PathShare& share : path.shares) sum += share.ns;
  EXPECT_NEAR(sum, 100e3, 1);
  EXPECT_NEAR(path.core_wait_ns, 34e3, 2) << "of step 1, without the exchange's share";
}

// The step ends when the thread has waited for the last kernel; that one waited for its launch,
// which came after a batch.
TEST(CriticalPath, GoesFromTheAwaitedKernelToItsLaunch) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .span(Kind::wait, "data", 0, 30)
      .launch(35, 38, What::kernel, "a", 40, 60)
      .launch(39, 41, What::kernel, "b", 62, 90)
      .span(Kind::sync, "ring", 50, 95);
  const CriticalPath path = critical_path(builder.build());
  EXPECT_EQ(edges_text(path),
            "data 30, idle 5, launch 5, kernel 20, idle 2, kernel 28, sync 5, idle 5");
  EXPECT_EQ(path.edges[2].what, "cudaLaunchKernel");
  EXPECT_EQ(path.edges[5].what, "b");
  EXPECT_EQ(path.edges[6].what, "ring");
}

TEST(CriticalPath, BlamesALaunchThatCameTooLate) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .launch(0, 5, What::kernel, "a", 10, 20)
      .span(Kind::range, "observer", 5, 70)
      .launch(70, 75, What::kernel, "b", 80, 100);
  EXPECT_EQ(edges_text(critical_path(builder.build())), "launch 5, cpu 65, launch 10, kernel 20");
}

TEST(CriticalPath, CrossesStreamsWhereAKernelWaitedForACopy) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .launch(0, 2, What::kernel, "a", 5, 10)
      .launch(2, 4, What::copy, "HtoD", 5, 60, 13)
      .launch(4, 6, What::kernel, "b", 61, 100);
  EXPECT_EQ(edges_text(critical_path(builder.build())),
            "launch 2, launch 3, copy 55, idle 1, kernel 39");
}

// A kernel may begin while the one it depends on drains.
TEST(CriticalPath, ContinuesOnAKernelThatStillRuns) {
  for (const std::uint32_t stream : {7U, 8U}) {
    SessionBuilder builder;
    builder.gpu()
        .step(1, 10, 130)
        .window(1, 1, 10, 130, true)
        .launch(1, 2, What::kernel, "a", 10, 110)
        .launch(2, 3, What::kernel, "b", 105, 130, stream);
    EXPECT_EQ(edges_text(critical_path(builder.build())), "kernel 95, kernel 25") << stream;
  }
}

// Beside what runs, a copy waited for its launch alone.
TEST(CriticalPath, ALaunchAfterTheBeginOfWhatRunsIsTheLaterOne) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 10, 130)
      .window(1, 1, 10, 130, true)
      .launch(1, 2, What::kernel, "a", 10, 110)
      .span(Kind::wait, "data", 10, 100)
      .launch(100, 102, What::copy, "HtoD", 105, 130, 13);
  EXPECT_EQ(edges_text(critical_path(builder.build())), "data 90, launch 5, copy 25");
}

// The next kernel of the stream follows within some us; meanwhile another stream's runs.
TEST(CriticalPath, ShowsWhatRunsBetweenTheActivitiesOfAChain) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 10, 110)
      .window(1, 1, 10, 110, true)
      .launch(1, 2, What::kernel, "a", 10, 60)
      .launch(2, 3, What::kernel, "aside", 50, 62, 8)
      .launch(3, 4, What::kernel, "b", 64, 110);
  const CriticalPath path = critical_path(builder.build());
  EXPECT_EQ(edges_text(path), "kernel 50, kernel 2, idle 2, kernel 46");
  ASSERT_EQ(path.edges.size(), 4U);
  EXPECT_EQ(path.edges[1].what, "aside");
}

TEST(CriticalPath, ShowsTheMedianStepOfTheLastWindow) {
  SessionBuilder builder;
  builder.step(1, 0, 500).step(2, 500, 600).step(3, 600, 900).step(4, 900, 1100);
  builder.window(1, 1, 0, 500).window(2, 4, 500, 1100);
  builder.span(Kind::call, "conv", 0, 1100);
  const CriticalPath path = critical_path(builder.build());
  EXPECT_EQ(path.step, 4U);
  EXPECT_EQ(edges_text(path), "kernel 200");
  EXPECT_DOUBLE_EQ(share_ns(path, "kernel"), 275e3);
}

void expect_tiles(const Session& session) {
  const CriticalPath path = critical_path(session);
  double sum = 0, share = 0;
  for (const PathShare& part : path.shares) {
    sum += part.ns;
    share += part.share;
  }
  double steps = 0;
  for (const Step& step : session.steps) steps += static_cast<double>(step.end_ns - step.begin_ns);
  ASSERT_NEAR(sum * static_cast<double>(session.steps.size()), steps, 1e-3);
  ASSERT_NEAR(share, 1, 1e-9);
  const auto step = std::find_if(session.steps.begin(), session.steps.end(),
                                 [&](const Step& s) { return s.step == path.step; });
  ASSERT_NE(step, session.steps.end());
  std::uint64_t at = step->begin_ns;
  for (const PathEdge& edge : path.edges) {
    ASSERT_EQ(edge.begin_ns, at);
    ASSERT_LT(edge.begin_ns, edge.end_ns);
    at = edge.end_ns;
    for (const Activity& a : session.activities)
      ASSERT_FALSE(edge.bound == "idle" && is_on_device(a) && a.start_ns < edge.end_ns &&
                   a.end_ns > edge.begin_ns);
  }
  ASSERT_EQ(at, step->end_ns);
}

TEST(CriticalPath, TilesStepsWhateverHappensInThem) {
  std::mt19937 random(11);
  const auto upto = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  const Kind kinds[] = {Kind::wait,     Kind::sync, Kind::range,
                        Kind::host_api, Kind::call, Kind::copy};
  for (int round = 0; round < 1'000; ++round) {
    SessionBuilder builder;
    if (round % 4 != 0) builder.gpu();
    builder.window(1, 3, 0, 90, true).step(1, 0, 30).step(2, 30, 50).step(3, 50, 90);
    for (int i = upto(12); i >= 0; --i) {
      const int begin = upto(100);
      builder.span(kinds[upto(5)], "s", begin, begin + upto(20));
    }
    for (int i = round % 4 != 0 ? 1 + upto(10) : 0; i > 0; --i) {
      const int launch = upto(80), begin = launch + upto(30) - 5;
      builder.launch(launch, launch + upto(5), upto(3) == 0 ? What::copy : What::kernel, "k",
                     std::max(0, begin), std::max(0, begin) + 1 + upto(30),
                     static_cast<std::uint32_t>(7 + upto(2)));
    }
    // Something in the window, whatever was drawn.
    builder.span(Kind::call, "s", 10, 20).launch(10, 11, What::kernel, "k", 40, 45);
    expect_tiles(builder.build());
    if (HasFatalFailure()) return;
  }
  expect_tiles(testing::smallest_trace());
}

TEST(CriticalPath, OfNothingIsEmpty) {
  EXPECT_TRUE(critical_path(Session{}).edges.empty());
  SessionBuilder builder;
  builder.step(1, 10, 10).window(1, 1, 0, 20).span(Kind::call, "conv", 0, 20);
  const CriticalPath path = critical_path(builder.build());
  EXPECT_TRUE(path.edges.empty());
  EXPECT_EQ(path.step, 1U);
  EXPECT_TRUE(path.shares.empty());
}

}  // namespace
}  // namespace warpstep::profiler

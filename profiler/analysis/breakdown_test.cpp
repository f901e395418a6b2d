#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/testing_goldens.h"
#include "profiler/analysis/work.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using Intervals = std::vector<Interval>;
constexpr std::uint64_t horizon = 60;

// The truth: a flag per ns.
std::vector<bool> flags(const Intervals& intervals) {
  std::vector<bool> set(horizon);
  for (const Interval& i : intervals)
    for (std::uint64_t t = i.begin_ns; t < i.end_ns; ++t) set[t] = true;
  return set;
}

bool is_sound(const Intervals& disjoint) {
  for (std::size_t i = 0; i < disjoint.size(); ++i) {
    if (disjoint[i].begin_ns >= disjoint[i].end_ns) return false;
    if (i > 0 && disjoint[i].begin_ns < disjoint[i - 1].end_ns) return false;
  }
  return true;
}

class Draws {
 public:
  std::uint64_t upto(std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random_);
  }
  Intervals intervals(std::uint64_t most) {
    Intervals drawn(upto(most));
    for (Interval& i : drawn) {
      i.begin_ns = upto(horizon);
      i.end_ns = std::min(horizon, i.begin_ns + upto(12));
    }
    return drawn;
  }
  // Disjoint and in order, with gaps or without, some empty.
  Intervals steps() {
    Intervals drawn;
    std::uint64_t at = upto(10);
    for (std::uint64_t n = upto(5); n > 0 && at < horizon; --n) {
      const std::uint64_t end = std::min(horizon, at + upto(15));
      drawn.push_back({at, end});
      at = end + (upto(1) == 0 ? 0 : upto(6));
    }
    return drawn;
  }

 private:
  std::mt19937 random_{7};
};

TEST(Intervals, AgreeWithFlags) {
  Draws draws;
  for (int i = 0; i < 5'000; ++i) {
    const Intervals some = draws.intervals(8), others = draws.intervals(8);
    const Intervals a = merged(some), b = merged(others);
    const std::vector<bool> in_a = flags(some), in_b = flags(others);
    ASSERT_TRUE(is_sound(a));
    ASSERT_EQ(flags(a), in_a);
    const Intervals both = intersection(a, b), rest = difference(a, b);
    ASSERT_TRUE(is_sound(both) && is_sound(rest));
    const std::vector<bool> in_both = flags(both), in_rest = flags(rest);
    std::uint64_t count = 0;
    for (std::size_t t = 0; t < horizon; ++t) {
      ASSERT_EQ(in_both[t], in_a[t] && in_b[t]);
      ASSERT_EQ(in_rest[t], in_a[t] && !in_b[t]);
      count += in_a[t] ? 1 : 0;
    }
    ASSERT_EQ(total_ns(a), count);
    const IntervalSet set(some);
    ASSERT_EQ(set.total_ns(), count);
    const std::size_t from = static_cast<std::size_t>(i) % horizon;
    std::uint64_t within = 0;
    for (std::size_t t = from; t < horizon; ++t) {
      ASSERT_EQ(set.within(from, t), within);
      ASSERT_EQ(set.has(t), in_a[t]);
      within += in_a[t] ? 1 : 0;
    }
  }
}

TEST(Intervals, MergeTouchingAndDropEmptyOnes) {
  const Intervals m = merged({{5, 7}, {1, 3}, {3, 5}, {9, 9}, {20, 10}});
  ASSERT_EQ(m.size(), 1U);
  EXPECT_EQ(m[0].begin_ns, 1U);
  EXPECT_EQ(m[0].end_ns, 7U);
  EXPECT_TRUE(merged({}).empty());
  EXPECT_FALSE(IntervalSet().has(0));
  EXPECT_EQ(IntervalSet().within(0, 9), 0U);
  EXPECT_EQ(IntervalSet({{1, 4}}).within(3, 2), 0U);
}

TEST(Sweep, AgreesWithACountOfEveryNanosecond) {
  Draws draws;
  for (int i = 0; i < 10'000; ++i) {
    const Intervals steps = draws.steps();
    std::array<Intervals, categories> wanted;
    for (Intervals& of : wanted) of = draws.intervals(5);
    const std::vector<Parts> parts = sweep(steps, wanted);
    ASSERT_EQ(parts.size(), steps.size());
    std::array<std::vector<bool>, categories> set;
    for (std::size_t c = 0; c < categories; ++c) set[c] = flags(wanted[c]);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      Parts truth{};
      for (std::uint64_t t = steps[s].begin_ns; t < steps[s].end_ns; ++t) {
        std::size_t c = 0;
        while (c + 1 < categories && !set[c][t]) ++c;
        ++truth[c];
      }
      ASSERT_EQ(parts[s], truth) << "case " << i << ", step " << s;
    }
  }
}

TEST(Sweep, AddsUpWithoutSteps) {
  EXPECT_TRUE(sweep({}, {}).empty());
}

}  // namespace
namespace {

TEST(NestedSlices, GivesEachMomentToTheInnermost) {
  const NestedSlices nesting = nest({{0, 100}, {10, 40}, {20, 30}, {50, 60}, {200, 210}});
  EXPECT_EQ(nesting.parent, (std::vector<std::int64_t>{-1, 0, 1, 0, -1}));
  std::vector<std::uint64_t> self(5);
  for (const TimeSlice& slice : nesting.slices) self[slice.item] += slice.end_ns - slice.begin_ns;
  EXPECT_EQ(self, (std::vector<std::uint64_t>{60, 20, 10, 10, 10}));
}

// Any overlaps: at each moment the one that began last, of those that run.
TEST(NestedSlices, AgreesWithACountOfEveryNanosecond) {
  std::mt19937 random(5);
  const auto upto = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random);
  };
  for (int round = 0; round < 3'000; ++round) {
    std::vector<Interval> items(upto(8));
    for (Interval& item : items) {
      item.begin_ns = upto(40);
      item.end_ns = item.begin_ns + upto(15);
    }
    std::stable_sort(items.begin(), items.end(), [](const Interval& a, const Interval& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::vector<std::int64_t> inner(60, -1), got(60, -1);
    for (std::size_t i = 0; i < items.size(); ++i)
      for (std::uint64_t t = items[i].begin_ns; t < items[i].end_ns; ++t)
        inner[t] = static_cast<std::int64_t>(i);
    std::uint64_t end = 0;
    for (const TimeSlice& slice : nest(items).slices) {
      ASSERT_LE(end, slice.begin_ns);
      ASSERT_LT(slice.begin_ns, slice.end_ns);
      end = slice.end_ns;
      for (std::uint64_t t = slice.begin_ns; t < end; ++t)
        got[t] = static_cast<std::int64_t>(slice.item);
    }
    ASSERT_EQ(got, inner);
  }
}

}  // namespace
namespace {

using testing::SessionBuilder;

struct InUs {
  double kernel = 0, copy = 0, memset = 0, runtime = 0, data = 0, sync = 0, cpu = 0, other = 0;
};

void expect_mean(const Breakdown& breakdown, const InUs& us) {
  const auto part = [&](Category c) { return breakdown.mean[static_cast<std::size_t>(c)] / 1000; };
  EXPECT_DOUBLE_EQ(part(Category::kernel), us.kernel);
  EXPECT_DOUBLE_EQ(part(Category::copy), us.copy);
  EXPECT_DOUBLE_EQ(part(Category::memset), us.memset);
  EXPECT_DOUBLE_EQ(part(Category::runtime), us.runtime);
  EXPECT_DOUBLE_EQ(part(Category::data), us.data);
  EXPECT_DOUBLE_EQ(part(Category::sync), us.sync);
  EXPECT_DOUBLE_EQ(part(Category::cpu), us.cpu);
  EXPECT_DOUBLE_EQ(part(Category::other), us.other);
  EXPECT_DOUBLE_EQ(std::accumulate(breakdown.mean.begin(), breakdown.mean.end(), 0.0),
                   breakdown.step_ns);
  for (const StepParts& step : breakdown.steps)
    EXPECT_EQ(std::accumulate(step.parts.begin(), step.parts.end(), std::uint64_t{0}),
              step.time.end_ns - step.time.begin_ns);
}

constexpr ReportRules as_tb{.tb_compatible = true};

// torch_tb_profiler's test of all categories: the backward pass runs on a thread of its own, which
// counts in its rules; in ours, the trainer's does.
TEST(Breakdown, AgreesWithTorchOnAllCategories) {
  const InUs golden{
      .kernel = 15, .copy = 10, .memset = 5, .runtime = 30, .data = 180, .cpu = 35, .other = 125};
  expect_mean(break_down(testing::all_categories(1), as_tb), golden);
  expect_mean(break_down(testing::all_categories(0)), golden);
  expect_mean(break_down(testing::all_categories(1)),
              {.kernel = 15, .copy = 10, .memset = 5, .data = 180, .other = 190});
}

TEST(Breakdown, AgreesWithTorchOnFourSteps) {
  const InUs golden{
      .kernel = 300, .copy = 40, .memset = 50, .runtime = 30, .data = 200, .cpu = 70, .other = 210};
  for (const ReportRules& options : {ReportRules{}, as_tb}) {
    const Breakdown breakdown = break_down(testing::four_steps(), options);
    expect_mean(breakdown, golden);
    EXPECT_EQ(breakdown.counted, 4U);
    EXPECT_TRUE(breakdown.from_spans);
    EXPECT_DOUBLE_EQ(breakdown.step_ns, 900e3);
  }
}

TEST(Breakdown, AgreesWithTorchOnTheSmallestTrace) {
  const InUs golden{.kernel = 200, .runtime = 20, .data = 200, .cpu = 60, .other = 420};
  expect_mean(break_down(testing::smallest_trace()), golden);
  expect_mean(break_down(testing::smallest_trace(), as_tb), golden);
}

// Where torch_tb_profiler finds 200 of 100.
TEST(Breakdown, DoesNotCountTwiceWhenKernelsFillTheStep) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .span(Kind::range, "layers", 5, 95)
      .launch(5, 25, What::kernel, "gemm", 0, 100);
  expect_mean(break_down(builder.build()), {.kernel = 100});
  expect_mean(break_down(builder.build(), as_tb), {.kernel = 100});
}

TEST(Breakdown, TellsWaitsForTheDeviceFromTheDriversOwnTime) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .launch(0, 10, What::kernel, "gemm", 20, 30)
      .span(Kind::host_api, "cudaStreamSynchronize", 30, 80)
      .span(Kind::sync, "end of step", 35, 80)
      .activity({.start_ns = SessionBuilder::at(50),
                 .end_ns = SessionBuilder::at(85),
                 .stream = 4242,
                 .what = What::sync},
                Kind::host_api, "stream");
  expect_mean(break_down(builder.build()), {.kernel = 10, .runtime = 15, .sync = 50, .other = 25});
  expect_mean(break_down(builder.build(), as_tb), {.kernel = 10, .runtime = 60, .other = 30});
}

// For torch_tb_profiler a step begins after what was launched before all steps.
TEST(Breakdown, WorkThatIsLaunchedAfterTheStepsMovesNone) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .launch(1, 2, What::kernel, "gemm", 20, 30)
      .launch(105, 106, What::kernel, "gemm", 110, 130);
  expect_mean(break_down(builder.build(), as_tb), {.kernel = 10, .runtime = 1, .other = 89});
}

// Two kernels of a graph, with a gap between them in which the trainer waits for the next batch.
TEST(Breakdown, AWaitBetweenKernelsOfAGraphIsNotOfTheStep) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100, 0, 70).window(1, 1, 0, 100, true);
  builder.span(Kind::wait, "wait for data", 0, 70);
  const auto parts = [&] { return break_down(builder.build()).steps.at(0).parts; };
  const auto of = [](const Parts& all, Category category) {
    return all[static_cast<std::size_t>(category)];
  };
  for (const double begin : {10.0, 40.0}) {
    builder.launch(1, 2, What::kernel, "k", begin, begin + 20);
    builder.last_activity().correlation = 5;
  }
  EXPECT_EQ(of(parts(), Category::data), 29'000U);  // all but the launches
  for (Activity& activity : builder.raw().activities)
    if (activity.what == What::kernel) activity.graph_node = 7;
  EXPECT_EQ(of(parts(), Category::kernel), 40'000U);
  EXPECT_EQ(of(parts(), Category::data), 19'000U);
  EXPECT_EQ(of(parts(), Category::other), 40'000U);
}

TEST(Breakdown, CountsCallsAsKernelsWhereTheHostComputes) {
  SessionBuilder builder;
  builder.thread(4301, "loader 0")
      .step(7, 0, 100)
      .window(7, 7, 0, 100)
      .span(Kind::wait, "data", 0, 20)
      .span(Kind::range, "step", 20, 90)
      .span(Kind::call, "conv1", 30, 50)
      .span(Kind::host_api, "pthread_cond_wait", 32, 48)
      .span(Kind::call, "fc", 60, 80)
      .span(Kind::sample, "sample", 0, 100, 1)
      .span(Kind::stage, "decode", 0, 90, 1);
  expect_mean(break_down(builder.build()), {.kernel = 40, .data = 20, .cpu = 30, .other = 10});
  // As it would see an export: ops of the host.
  expect_mean(break_down(builder.build(), as_tb),
              {.runtime = 16, .data = 20, .cpu = 54, .other = 10});
}

TEST(Breakdown, OnADeviceCallsAreTheHostsWork) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .span(Kind::call, "conv1", 10, 30)
      .launch(15, 20, What::kernel, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 60);
  const Breakdown breakdown = break_down(builder.build());
  EXPECT_EQ(breakdown.mean[static_cast<std::size_t>(Category::communication)], 10e3);
  EXPECT_EQ(breakdown.mean[static_cast<std::size_t>(Category::cpu)], 15e3);
}

TEST(Breakdown, TrainersThreadIsTheOneThatWaitsForData) {
  SessionBuilder builder;
  builder.thread(77, "trainer")
      .step(1, 0, 100)
      .window(1, 1, 0, 100)
      .span(Kind::range, "observer of main", 0, 60, 0)
      .span(Kind::wait, "data", 0, 10, 1)
      .span(Kind::range, "observer", 80, 100, 1);
  expect_mean(break_down(builder.build()), {.data = 10, .cpu = 20, .other = 70});
}

TEST(Breakdown, WithoutSpansTakesWhatEveryStepTells) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 1000, 900)
      .step(2, 1000, 1100, 60, 20, 10, 5)
      .step(3, 1100, 1200, 50, 30, 10, 5);
  const Breakdown breakdown = break_down(builder.build());
  expect_mean(breakdown, {.kernel = 55, .copy = 5, .data = 25, .cpu = 10, .other = 5});
  EXPECT_EQ(breakdown.counted, 2U);
  EXPECT_FALSE(breakdown.from_spans);
  EXPECT_EQ(breakdown.steps.size(), 3U);

  // Spans of the host alone do not say when kernels ran.
  builder.window(3, 3, 1100, 1200).span(Kind::wait, "data", 1100, 1110);
  expect_mean(break_down(builder.build()),
              {.kernel = 50, .copy = 5, .data = 30, .cpu = 10, .other = 5});
}

TEST(Breakdown, CountsCompleteWindowsOnly) {
  SessionBuilder builder;
  builder.step(1, 0, 100, 10).step(2, 100, 200, 20).step(3, 200, 300, 30);
  builder.window(2, 2, 100, 200).span(Kind::call, "conv", 100, 150);
  builder.window(3, 3, 200, 300).span(Kind::call, "conv", 200, 290);
  builder.raw().windows.back().complete = 0;
  const Breakdown breakdown = break_down(builder.build());
  EXPECT_EQ(breakdown.counted, 1U);
  EXPECT_TRUE(breakdown.from_spans);
  expect_mean(breakdown, {.kernel = 50, .other = 50});
  EXPECT_FALSE(breakdown.steps[2].from_spans);
}

TEST(Breakdown, TorchsStepsLastUntilTheirWorkIsDone) {
  SessionBuilder builder;
  builder.gpu().window(1, 4, 0, 400, true);
  for (int i = 0; i < 4; ++i)
    builder.step(static_cast<std::uint64_t>(i + 1), i * 100, i * 100 + 90);
  builder.launch(80, 85, What::kernel, "late", 95, 110);  // of step 1, into step 2
  builder.launch(120, 130, What::kernel, "k", 130, 150);
  builder.launch(220, 230, What::kernel, "k", 230, 250);
  const Breakdown breakdown = break_down(builder.build(), as_tb);
  EXPECT_EQ(breakdown.steps[0].time.end_ns, SessionBuilder::at(110));
  EXPECT_EQ(breakdown.steps[1].time.begin_ns, SessionBuilder::at(110));
  EXPECT_EQ(breakdown.counted, 3U);  // the last one launched nothing
}

TEST(Breakdown, HasAnswersForNothing) {
  const Breakdown empty = break_down(Session{});
  EXPECT_TRUE(empty.steps.empty());
  EXPECT_EQ(empty.step_ns, 0);
  SessionBuilder builder;
  builder.step(1, 10, 10).window(1, 1, 0, 20).span(Kind::call, "conv", 0, 20);
  const Breakdown zero = break_down(builder.build());
  EXPECT_EQ(zero.counted, 1U);
  EXPECT_EQ(zero.step_ns, 0);
  EXPECT_EQ(break_down(Session{}, as_tb).counted, 0U);
}

TEST(Breakdown, HasANameForEveryCategory) {
  EXPECT_EQ(name(Category::kernel), "kernel");
  EXPECT_EQ(title(Category::copy), "Memcpy");
  EXPECT_EQ(name(Category::other), "other");
}

// A batch norm of all ranks' rows waits for the others in the middle of its call.
TEST(Breakdown, TakesAnExchangeOutOfTheCallAroundIt) {
  SessionBuilder builder;
  builder.step(1, 0, 1000).window(1, 1, 0, 1000);
  builder.span(Kind::range, "all_gather norms", 100, 700).span(Kind::call, "bn/batch_norm", 0, 900);
  const Session session = builder.build();
  const Breakdown breakdown = break_down(session);
  const auto part = [&](Category category) {
    return breakdown.mean[static_cast<std::size_t>(category)];
  };
  EXPECT_EQ(part(Category::kernel), 300'000);
  EXPECT_EQ(part(Category::communication), 600'000);
  const Work work = find_work(session);
  EXPECT_EQ(work.calls.at(0).total_ns, 300'000U);
  EXPECT_EQ(work.kernels.at(0).total_ns, 300'000U);
}

// A rank polls for the others, often without a core: that is no time of its kernels.
TEST(Breakdown, LeavesExchangesTheirShareOfTheWaitsForACore) {
  SessionBuilder builder;
  builder.step(1, 0, 1000).window(1, 1, 0, 1000);
  builder.span(Kind::call, "fc1/linear", 0, 400).span(Kind::call, "bucket0/all_reduce", 400, 1000);
  builder.span(Kind::counter, "core wait ns", 999, 999, 0, 500'000);
  const Breakdown breakdown = break_down(builder.build());
  const auto part = [&](Category category) {
    return breakdown.mean[static_cast<std::size_t>(category)];
  };
  EXPECT_NEAR(part(Category::kernel), 200'000, 2);
  EXPECT_NEAR(part(Category::core_wait), 200'000, 2);
  EXPECT_NEAR(part(Category::communication), 600'000, 2);
}

}  // namespace
}  // namespace warpstep::profiler

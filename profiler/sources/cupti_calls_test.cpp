// Kernels are assigned to their calls, with and without graphs.
#include "profiler/sources/cupti_calls.h"

#include <gtest/gtest.h>

#include <thread>

#include "profiler/sources/cupti_testing_windows.h"

namespace warpstep::profiler {
namespace {

using namespace testing;

const record::Name calls_conv("conv1", Kind::call), pool("pool1", Kind::call), user("epoch");

TEST(CuptiCalls, EagerCallsAreTold) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  trace->begin();
  for (int step = 0; step < 3; ++step) {
    const record::Span epoch(user, 99);  // not a call
    {
      const record::Span span(calls_conv, 0);
      cupti.launch("_Z4gemmPfi");
      cupti.launch({.kernel = "_Z4biasPf", .by_runtime = false, .by_driver = true});
    }
    {
      const record::Span span(pool, 1);
      cupti.launch({.kernel = "_Z4poolPf", .stream = 8, .lasts_ns = 333});
    }
    cupti.launch({.kernel = "_Z5otherv", .by_driver = true, .lasts_ns = 77});
  }
  const Traced traced = trace->end();
  EXPECT_EQ(by_call(traced), (std::map<std::uint64_t, std::uint64_t>{
                                 {0, 6 * 1000}, {1, 3 * 333}, {~std::uint64_t{0}, 3 * 77}}));
  EXPECT_EQ(of(traced, What::api).size(), 12U);  // one per launch
  EXPECT_TRUE(testing::pushed_externals().empty());
}

TEST(CuptiCalls, OddOrderChangesNothing) {
  const auto run = [](bool odd) {
    FakeCupti cupti;
    cupti.faults.odd_order = odd;
    const auto trace = open(cupti);
    trace->begin();
    for (std::uint64_t i = 0; i < 20; ++i) {
      const record::Span span(calls_conv, i);
      cupti.launch({.stream = 7 + static_cast<std::uint32_t>(i % 3), .by_driver = i % 2 == 0});
    }
    return trace->end();
  };
  const Traced plain = run(false), odd = run(true);
  EXPECT_EQ(by_call(plain).size(), 20U);
  EXPECT_EQ(by_call(plain), by_call(odd));
  EXPECT_EQ(plain.activities.size(), odd.activities.size());
}

// Spans that begin before a window or end after it keep CUPTI's stack of ids balanced.
TEST(CuptiCalls, SpansMayCrossAWindowsEdges) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  {
    const record::Span early(calls_conv, 3);
    EXPECT_TRUE(testing::pushed_externals().empty());
    trace->begin();
    cupti.launch("_Z4gemmPfi");  // its id was not pushed
  }
  Traced traced;
  {
    const record::Span late(calls_conv, 4);
    cupti.launch("_Z4gemmPfi");
    traced = trace->end();
    {
      const record::Span after(pool, 5);  // its id is not pushed, and the other's is not popped
    }
    EXPECT_EQ(testing::pushed_externals(), std::vector<std::uint64_t>{5});
  }
  EXPECT_TRUE(testing::pushed_externals().empty());
  EXPECT_EQ(by_call(traced),
            (std::map<std::uint64_t, std::uint64_t>{{4, 1000}, {~std::uint64_t{0}, 1000}}));
}

TEST(CuptiCalls, NestedAndDeepCallsEndWhereTheyBegan) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  trace->begin();
  {
    std::vector<std::unique_ptr<record::Span>> spans;
    for (std::uint64_t i = 0; i < 40; ++i)
      spans.push_back(std::make_unique<record::Span>(calls_conv, i));
    while (!spans.empty()) spans.pop_back();
  }
  EXPECT_TRUE(testing::pushed_externals().empty());
  {
    const record::Span span(calls_conv, 5);
    cupti.launch("_Z4gemmPfi");
  }
  EXPECT_EQ(by_call(trace->end()), (std::map<std::uint64_t, std::uint64_t>{{5, 1000}}));
}

// A graph captured before the window, with kernels of calls 0 (two), 1 and none.
FakeGraph captured(FakeCupti& cupti) {
  FakeGraph graph;
  {
    const record::Span span(calls_conv, 0);
    cupti.capture(graph, "_Z4gemmPfi");
    cupti.capture(graph, "_Z4biasPf");
  }
  {
    const record::Span span(pool, 1);
    cupti.capture(graph, "_Z4poolPf");
  }
  cupti.capture(graph, "_Z5otherv");
  return graph;
}

TEST(CuptiCalls, CallsInGraphsAreTold) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  const FakeGraph graph = captured(cupti);
  FakeGraph executable;
  {
    const record::Span span(user);
    const record::Span around(pool, 9);  // nodes instantiated inside do not belong to it
    executable = cupti.instantiate(graph);
  }
  trace->begin();
  for (int step = 0; step < 10; ++step) cupti.launch(executable);
  const Traced traced = trace->end();
  const auto kernels = of(traced, What::kernel);
  ASSERT_EQ(kernels.size(), 40U);
  EXPECT_EQ(by_call(traced), (std::map<std::uint64_t, std::uint64_t>{
                                 {0, 20 * 700}, {1, 10 * 700}, {~std::uint64_t{0}, 10 * 700}}));
  std::uint64_t sum = 0;
  for (const auto& [call, ns] : by_call(traced)) sum += ns;
  EXPECT_EQ(sum, total_ns(kernels));
  std::map<std::uint64_t, std::optional<std::uint64_t>> calls;  // by node
  for (const Activity& a : kernels) calls[a.graph_node] = call_of(a);
  EXPECT_FALSE(calls.contains(0));
  EXPECT_EQ(calls.size(), 4U);
  EXPECT_EQ(calls.at(executable.nodes[1]->id), 0U);
  EXPECT_EQ(calls.at(executable.nodes[2]->id), 1U);
  EXPECT_FALSE(calls.at(executable.nodes[3]->id).has_value());
  EXPECT_EQ(of(traced, What::api).size(), 10U);
}

TEST(CuptiCalls, AnUpdatedGraphHasItsNewCalls) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  FakeGraph executable = cupti.instantiate(captured(cupti));
  FakeGraph other;
  for (std::uint64_t call = 10; call < 13; ++call) {
    const record::Span span(calls_conv, call);
    cupti.capture(other, "_Z4nextv");
  }
  cupti.update(executable, other);
  trace->begin();
  cupti.launch(executable);
  EXPECT_EQ(by_call(trace->end()), (std::map<std::uint64_t, std::uint64_t>{
                                       {10, 700}, {11, 700}, {12, 700}, {~std::uint64_t{0}, 700}}));
  FakeGraph nobodys;
  cupti.capture(nobodys, "_Z5otherv");
  cupti.update(executable, nobodys);
  trace->begin();
  cupti.launch(executable);
  EXPECT_EQ(by_call(trace->end()), (std::map<std::uint64_t, std::uint64_t>{
                                       {11, 700}, {12, 700}, {~std::uint64_t{0}, 1400}}));
}

TEST(CuptiCalls, ThreadsDoNotShareCalls) {
  FakeCupti cupti;
  const auto trace = open(cupti);
  trace->begin();
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const record::Span span(calls_conv, t);
        cupti.launch({.lasts_ns = 10 + t});
      }
    });
  threads.clear();
  EXPECT_EQ(by_call(trace->end()),
            (std::map<std::uint64_t, std::uint64_t>{{0, 2000}, {1, 2200}, {2, 2400}, {3, 2600}}));
}

}  // namespace
}  // namespace warpstep::profiler

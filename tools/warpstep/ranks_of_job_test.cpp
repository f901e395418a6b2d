#include "tools/warpstep/ranks_of_job.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

namespace warpstep::tools {
namespace {

// Of one rank, each of whose exchanges takes a while.
class SlowTransport final : public Transport {
 public:
  World world() const override { return {}; }
  std::string describe() const override { return "slow"; }
  void start(std::span<const Message>, std::span<const Message>) override {}
  bool done() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  std::vector<int> silent_peers() const override { return {}; }
  [[noreturn]] void abort(int code) override { std::_Exit(code); }
};

TEST(StepExchanges, AreThoseOfStepsAlone) {
  Communicator communicator(std::make_unique<SlowTransport>());
  communicator.gather("as when ranks start");
  StepExchanges exchanges(&communicator);
  exchanges.on_step({});
  EXPECT_EQ(exchanges.seconds(), 0);
  communicator.gather("in a step");
  exchanges.on_step({});
  const double in_step = exchanges.seconds();
  EXPECT_GE(in_step, 0.001);
  communicator.gather("for an evaluation");
  exchanges.on_evaluation({});
  exchanges.on_step({});
  EXPECT_EQ(exchanges.seconds(), in_step);
  StepExchanges none(nullptr);
  none.on_step({});
  EXPECT_EQ(none.seconds(), 0);
}

// Gradients in one bucket or two, in this order or another; norms of this rank's rows or all
// ranks'.
TEST(ExchangeCalls, DifferWhereRanksWouldExchangeOtherwise) {
  const auto calls = [](const std::vector<std::vector<int>>& buckets, std::int64_t norm_ranks) {
    Graph graph;
    for (const char* name : {"fc1.weight", "fc2.weight"})
      graph.add_value({DType::f32, {4}}, Role::gradient, name);
    graph.nodes.push_back({.op = BatchNorm{.ranks = norm_ranks}, .in = {0, 1}, .scope = "bn"});
    for (const auto& bucket : buckets)
      graph.nodes.push_back({.op = AllReduce{.ranks = 2}, .in = bucket, .scope = "exchange"});
    return exchange_calls(graph);
  };
  const std::string alike = calls({{1, 0}}, 1);
  EXPECT_EQ(calls({{1, 0}}, 1), alike);
  EXPECT_NE(calls({{0, 1}}, 1), alike);
  EXPECT_NE(calls({{1}, {0}}, 1), alike);
  EXPECT_NE(calls({{1, 0}}, 2), alike);
}

}  // namespace
}  // namespace warpstep::tools

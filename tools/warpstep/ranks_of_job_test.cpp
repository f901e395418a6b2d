#include "tools/warpstep/ranks_of_job.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

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

}  // namespace
}  // namespace warpstep::tools

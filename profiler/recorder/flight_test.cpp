#include "profiler/recorder/flight.h"

#include <gmock/gmock.h>

namespace warpstep::profiler {
namespace {

// Steps of a constant length that make `entries` each in detail, and none otherwise.
class Flown {
 public:
  Flown(std::uint64_t step_ns, std::uint64_t entries, std::uint64_t accumulate = 1)
      : flight_(50, accumulate), step_ns_(step_ns), entries_(entries) {}

  std::uint64_t steps(std::uint64_t count) {
    std::uint64_t detailed = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (flight_.wants_details()) {
        ++detailed;
        recorded_ += entries_;
      }
      step(step_ns_);
    }
    return detailed;
  }
  void step(std::uint64_t ns) {
    const std::uint64_t begin = std::exchange(end_ns_, end_ns_ + ns);
    flight_.on_step({.step = ++step_, .begin_ns = begin, .end_ns = end_ns_},
                    [this] { return recorded_; });
  }
  // An evaluation between two steps.
  void evaluate(std::uint64_t ns, std::uint64_t entries) {
    end_ns_ += ns;
    recorded_ += entries;
  }
  Flight& flight() { return flight_; }

 private:
  Flight flight_;  // 50 ns per span
  std::uint64_t step_ns_, entries_;
  std::uint64_t step_ = 0, end_ns_ = 1'000'000, recorded_ = 0;
};

// 100 entries of 50 ns are 5 % of a step of 0.1 ms, which is allowed in one step of 25.
TEST(Flight, RecordsDetailsOfShortStepsInRareBursts) {
  Flown run(100'000, 100);
  EXPECT_EQ(run.steps(16 * 25), 16U);
  EXPECT_EQ(run.flight().every(), 25U);
  EXPECT_EQ(run.steps(1600), 64U);
}

TEST(Flight, RecordsAllDetailsOfLongSteps) {
  Flown run(100'000'000, 1000);
  EXPECT_EQ(run.steps(200), 200U);
  const std::vector<Window> windows = run.flight().windows(0, ~std::uint64_t{0});
  ASSERT_EQ(windows.size(), 1U) << "steps that follow each other are one window";
  EXPECT_EQ(windows[0].first_step, 1U);
  EXPECT_EQ(windows[0].last_step, 200U);
}

TEST(Flight, DoesNotChargeAnEvaluationToTheStepsAroundIt) {
  Flown run(100'000'000, 1000);
  run.steps(20);
  run.evaluate(1'000'000'000, 10'000'000);
  EXPECT_EQ(run.steps(60), 60U);
  EXPECT_EQ(run.flight().every(), 1U);
}

TEST(Flight, KeepsASlowStepWithItsNeighbours) {
  Flown run(10'000'000, 1);
  run.steps(40);
  EXPECT_FALSE(run.flight().take_slow());
  run.step(50'000'000);
  EXPECT_FALSE(run.flight().take_slow()) << "two more steps belong to it";
  run.steps(2);
  const std::optional<Kept> slow = run.flight().take_slow();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->step, 41U);
  EXPECT_EQ(slow->first_step, 39U);
  EXPECT_EQ(slow->last_step, 43U);
  EXPECT_EQ(slow->median_ns, 10'000'000U);
  EXPECT_EQ(slow->end_ns - slow->begin_ns, 90'000'000U);
  EXPECT_FALSE(run.flight().take_slow());
}

TEST(Flight, KeepsNoUpdateBecauseItIsOne) {
  const auto fly = [](Flown& run, int updates) {
    for (int i = 0; i < updates; ++i) {
      run.steps(7);
      run.step(50'000'000);
    }
  };
  Flown plain(10'000'000, 1), accumulating(10'000'000, 1, 8);
  fly(plain, 20);
  EXPECT_TRUE(plain.flight().take_slow(true));
  fly(accumulating, 20);
  EXPECT_FALSE(accumulating.flight().take_slow(true));
  accumulating.steps(7);
  accumulating.step(160'000'000);
  accumulating.steps(2);
  const std::optional<Kept> slow = accumulating.flight().take_slow();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->step, 168U);
  EXPECT_EQ(slow->median_ns, 50'000'000U) << "of updates";
}

// Twice the median is not slow, and a millisecond more than the median is the scheduler's.
TEST(Flight, KeepsNoStepThatIsOnlySomewhatSlow) {
  Flown run(10'000'000, 1);
  run.steps(40);
  run.step(20'000'000);
  run.steps(5);
  EXPECT_FALSE(run.flight().take_slow(true));
  Flown quick(100'000, 1);
  quick.steps(40);
  quick.step(900'000);
  quick.steps(5);
  EXPECT_FALSE(quick.flight().take_slow(true));
}

}  // namespace
}  // namespace warpstep::profiler

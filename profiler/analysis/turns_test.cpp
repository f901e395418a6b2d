#include "profiler/analysis/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

constexpr std::uint64_t ms = 1'000'000;

// Two runs that take turns of `turn_ms`; `step_ms(side, turn)` is the time of that turn's steps.
struct Runs {
  Session before, changed;
  std::vector<Turn> turns;

  template <class StepMs>
  Runs(std::size_t pairs, double turn_ms, std::int64_t changed_samples, const StepMs& step_ms) {
    std::uint64_t now = 5 * ms;
    for (std::size_t t = 0; t < 2 * pairs; ++t) {
      const bool is_changed = t % 4 == 1 || t % 4 == 2;
      Session& session = is_changed ? changed : before;
      const auto end = now + static_cast<std::uint64_t>(turn_ms * 1e6);
      turns.push_back({is_changed, now, end});
      // The step that the last turn cut begins before this one.
      std::uint64_t begin = session.steps.empty() ? now - 1 : session.steps.back().end_ns;
      for (std::uint64_t at = now; at < end;) {
        at += static_cast<std::uint64_t>(step_ms(is_changed, t) * 1e6);
        Step step{.step = session.steps.size() + 1, .epoch = 1, .begin_ns = begin, .end_ns = at};
        step.samples = is_changed ? changed_samples : 10;
        step.data_ns = (at - begin) / 4;
        step.kernels_ns = at - begin - step.data_ns;
        if (at > end) break;
        session.steps.push_back(step);
        begin = at;
      }
      now = end;
    }
  }
  LivePair pair() const { return {&before, &changed, turns}; }
};

TEST(Turns, CancelWhatSlowsDownTheMachineForLongerThanATurn) {
  // Twice as slow from the fifth pair on, 1.5 times in the third; the change costs a tenth.
  const Runs runs(8, 100, 10, [](bool is_changed, std::size_t turn) {
    return (is_changed ? 2.2 : 2.0) * (turn >= 8 ? 2 : turn / 2 == 2 ? 1.5 : 1);
  });
  const TurnComparison found = compare_turns({runs.pair()}, 0.01);
  EXPECT_NEAR(found.ratio, 1.1, 1e-3);
  EXPECT_TRUE(found.is_significant());
  EXPECT_EQ(found.pairs, 8);
  // By hand: 5 degrees of freedom, no spread: 2.5706 sd of one start.
  EXPECT_NEAR(std::log(found.high / found.ratio), 2.5706 * 0.01, 2e-4);
  EXPECT_NEAR(found.smallest_change(), std::exp(0.025706) - 1, 2e-4);
  EXPECT_NEAR(found.changed.data_ns, found.changed.step_ns / 4, 1e3);
  EXPECT_NEAR(found.changed.kernels_ns + found.changed.data_ns, found.changed.step_ns, 1);
}

// A step that began in an earlier turn holds the time in which its process was stopped.
TEST(Turns, LeaveOutStepsThatAreNotWholeAndTheFirstOfATurn) {
  const Runs runs(4, 20, 10, [](bool, std::size_t) { return 3.0; });
  const TurnComparison found = compare_turns({runs.pair()}, 0.01);
  EXPECT_DOUBLE_EQ(found.ratio, 1);
  EXPECT_FALSE(found.is_significant());
  EXPECT_EQ(found.before.step_ns, 3.0 * ms);
  EXPECT_EQ(found.changed.step_ns, 3.0 * ms);
  // Six steps end in 20 ms; the first began before the turn, two more meet cold caches.
  EXPECT_EQ(found.before.steps, 4 * 3U);
}

TEST(Turns, CountAllWholeStepsThatBeginLater) {
  const Runs runs(4, 1000, 10, [](bool, std::size_t) { return 100.0; });
  EXPECT_EQ(compare_turns({runs.pair()}, 0.01).before.steps, 4 * 9U) << "of ten, one is not whole";
}

TEST(Turns, CompareTheTimeOfASample) {
  const Runs runs(6, 100, 20, [](bool is_changed, std::size_t) { return is_changed ? 3.0 : 2.0; });
  const TurnComparison found = compare_turns({runs.pair()}, 0.01);
  EXPECT_NEAR(found.ratio, 0.75, 1e-9) << "a step of 20 samples in 3 ms, one of 10 in 2";
  EXPECT_DOUBLE_EQ(found.changed.samples, 20);
  EXPECT_DOUBLE_EQ(found.changed.sample_ns(), 0.15 * ms);
}

TEST(Turns, CountWaitsOfSomeSteps) {
  int step = 0;
  const Runs runs(6, 100, 10, [&](bool is_changed, std::size_t) {
    return is_changed && ++step % 4 == 0 ? 6.0 : 2.0;  // the median is 2
  });
  EXPECT_NEAR(compare_turns({runs.pair()}, 0.01).ratio, 1.5, 0.06);
}

TEST(Turns, AreNotMovedByAFewDisturbedOnes) {
  const Runs runs(10, 100, 10, [](bool is_changed, std::size_t turn) {
    return !is_changed && (turn == 3 || turn == 8) ? 9.0 : 2.0;
  });
  EXPECT_NEAR(compare_turns({runs.pair()}, 0.01).ratio, 1, 1e-9);
}

TEST(Turns, TakeTheHodgesLehmannEstimateOfPairs) {
  constexpr std::array logarithms{0.01, 0.02, 0.09};
  const Runs runs(3, 100, 10, [&](bool is_changed, std::size_t turn) {
    return is_changed ? 2 * std::exp(logarithms[turn / 2]) : 2.0;
  });
  EXPECT_NEAR(std::log(compare_turns({runs.pair()}, 0.01).ratio), 0.035, 1e-5)
      << "their median is 0.02, their mean 0.04";
}

// Levels of -2, 0 and 5 %: mean 1 %, squares 4.9 + 1 + 16 = 26e-4 around it; pooled with five times
// 1e-4: 31e-4 over 7 degrees of freedom. Student's t of 7 is 2.3646.
TEST(Turns, PoolTheSpreadOfStartsWithThePrior) {
  std::vector<Runs> runs;
  for (const double level : {-0.02, 0.0, 0.05})
    runs.emplace_back(4, 1000, 10, [level](bool is_changed, std::size_t) {
      return is_changed ? 2 * std::exp(level) : 2.0;
    });
  const TurnComparison found =
      compare_turns({runs[0].pair(), runs[1].pair(), runs[2].pair()}, 0.01);
  EXPECT_NEAR(std::log(found.ratio), 0.01, 1e-5);
  EXPECT_NEAR(std::log(found.high / found.low) / 2, 2.3646 * std::sqrt(31e-4 / 7 / 3), 1e-4);
}

// Equal runs whose turns vary by 10 %: at most 5 in 100 differ.
TEST(Turns, CallFewEqualRunsDifferent) {
  std::mt19937 random(1);
  int called = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<Runs> runs;
    for (int start = 0; start < 3; ++start) {
      std::normal_distribution<double> of_start(0, 0.005), of_turn(0, 0.1);
      const double level = of_start(random);
      double turn_level = 0;
      std::size_t last = 99;
      runs.emplace_back(8, 60, 10, [&](bool is_changed, std::size_t turn) {
        if (turn != last) turn_level = of_turn(random);
        last = turn;
        return 2 * std::exp(turn_level + (is_changed ? level : 0));
      });
    }
    called +=
        compare_turns({runs[0].pair(), runs[1].pair(), runs[2].pair()}, 0.005).is_significant();
  }
  EXPECT_LE(called, 16);
  EXPECT_GE(called, 3) << "the interval is too wide";
}

TEST(Turns, RefuseTurnsShorterThanSteps) {
  const Runs runs(6, 10, 10, [](bool, std::size_t) { return 4.0; });
  try {
    compare_turns({runs.pair()}, 0.01);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(),
                 "0 of 6 pairs of turns have whole steps of both sides, and 3 are needed: give "
                 "longer or more turns");
  }
}

TEST(Turns, HodgesLehmannIsTheMedianOfAllMeansOfTwo) {
  EXPECT_EQ(hodges_lehmann({}), 0);
  EXPECT_EQ(hodges_lehmann({1, 2, 9}), 3.5) << "of 1, 1.5, 2, 5, 5.5 and 9";
}

}  // namespace
}  // namespace warpstep::profiler

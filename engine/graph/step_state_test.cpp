#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/graph/step_state.h"

namespace warpstep {
namespace {

using Rates = std::vector<std::pair<std::int64_t, double>>;  // step, learning rate

void expect_rates(const Schedule& schedule, const Rates& rates) {
  for (const auto& [step, rate] : rates)
    EXPECT_NEAR(learning_rate(schedule, step), rate, 1e-14) << text(schedule) << ", step " << step;
}

Schedule of_kind(Schedule::Kind kind, double peak, std::int64_t total_steps) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.peak = peak;
  schedule.total_steps = total_steps;
  return schedule;
}

// The numbers of the following tests are what torch 2.15 gives: lr of an SGD of lr 0.1, step by
// step, under torch.optim.lr_scheduler.X with the arguments named.

// OneCycleLR(max_lr=0.1, total_steps=100, cycle_momentum=False)
TEST(OneCycle, IsPyTorchs) {
  expect_rates(of_kind(Schedule::Kind::one_cycle, 0.1, 100), {{0, 0.0040000000000000036},
                                                              {1, 0.004281378056590748},
                                                              {10, 0.029516394846410082},
                                                              {28, 0.09971862194340926},
                                                              {29, 0.1},
                                                              {30, 0.09994965352845243},
                                                              {60, 0.05892800902855288},
                                                              {98, 5.07464715475788e-05},
                                                              {99, 4e-07}});
}

// OneCycleLR(max_lr=0.5, total_steps=10, pct_start=0.4, div_factor=10, final_div_factor=100)
TEST(OneCycle, TakesPyTorchsArguments) {
  Schedule schedule = of_kind(Schedule::Kind::one_cycle, 0.5, 10);
  schedule.rise_fraction = 0.4;
  schedule.initial_divisor = 10;
  schedule.final_divisor = 100;
  expect_rates(schedule, {{0, 0.05},
                          {1, 0.1625},
                          {2, 0.3875},
                          {3, 0.5},
                          {4, 0.4665398445951636},
                          {5, 0.375125},
                          {6, 0.25025},
                          {7, 0.125375},
                          {8, 0.033960155404836434},
                          {9, 0.0005}});
}

// OneCycleLR(max_lr=0.1, total_steps=3): the rise ends before the first step.
TEST(OneCycle, MayBeShorterThanItsRise) {
  expect_rates(of_kind(Schedule::Kind::one_cycle, 0.1, 3),
               {{0, 0.09944154354509119}, {1, 0.046263710266697504}, {2, 4e-07}});
}

TEST(OneCycle, IsANumberForEveryLengthAndRise) {
  for (const std::int64_t steps : {1, 2, 5, 10, 20, 100})
    for (const double rise : {0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0}) {
      Schedule schedule = of_kind(Schedule::Kind::one_cycle, 0.1, steps);
      schedule.rise_fraction = rise;
      for (std::int64_t step = 0; step < steps + 2; ++step) {
        const double rate = learning_rate(schedule, step);
        EXPECT_TRUE(rate > 0 && rate <= 0.1 + 1e-15)
            << rate << " at " << step << " of " << steps << ", rise " << rise;
      }
    }
}

// CosineAnnealingLR(T_max=50)
TEST(Cosine, IsPyTorchs) {
  expect_rates(of_kind(Schedule::Kind::cosine, 0.1, 50), {{0, 0.1},
                                                          {1, 0.09990133642141358},
                                                          {10, 0.09045084971874737},
                                                          {25, 0.05},
                                                          {40, 0.009549150281252632},
                                                          {49, 9.866357858642205e-05},
                                                          {50, 0.0},
                                                          {70, 0.0}});  // stays there
}

// CosineAnnealingLR(T_max=8, eta_min=0.01)
TEST(Cosine, EndsAtItsFraction) {
  Schedule schedule = of_kind(Schedule::Kind::cosine, 0.1, 8);
  schedule.final_fraction = 0.1;
  expect_rates(schedule, {{0, 0.1},
                          {1, 0.0965745789630079},
                          {3, 0.07222075445642905},
                          {4, 0.055},
                          {7, 0.013425421036992097},
                          {8, 0.01}});
}

// StepLR(step_size=3, gamma=0.5)
TEST(Step, IsPyTorchs) {
  Schedule schedule = of_kind(Schedule::Kind::step, 0.1, 10);
  schedule.period_batches = 3;
  schedule.gamma = 0.5;
  expect_rates(schedule, {{0, 0.1}, {2, 0.1}, {3, 0.05}, {5, 0.05}, {6, 0.025}, {9, 0.0125}});
}

// By hand: 2.5 updates are a period.
TEST(Step, CountsBatchesThatUpdatesSum) {
  Schedule schedule = of_kind(Schedule::Kind::step, 0.1, 10);
  schedule.period_batches = 10;
  schedule.accumulate = 4;
  schedule.gamma = 0.5;
  expect_rates(schedule, {{0, 0.1}, {2, 0.1}, {3, 0.05}, {4, 0.05}, {5, 0.025}, {8, 0.0125}});
}

// By hand: 2 epochs of 8 batches come before epochs of 4, in which periods of 3 epochs are 12.
TEST(Step, CountsBatchesOfEpochsOfAnotherLength) {
  Schedule schedule = of_kind(Schedule::Kind::step, 0.1, 40);
  schedule.period_batches = 12;
  schedule.offset_batches = 2 * 4 - 16;
  schedule.gamma = 0.5;
  expect_rates(schedule, {{0, 0.1}, {16, 0.1}, {19, 0.1}, {20, 0.05}, {31, 0.05}, {32, 0.025}});
  schedule.warmup_steps = 6;
  expect_rates(schedule, {{5, 0.1 * 6 / 7}, {6, 0.1}, {16, 0.1}, {19, 0.1}, {20, 0.05}});
}

// By hand: 4 steps of warm-up climb in fifths of the peak, then the cosine of 10 - 4 steps begins.
TEST(WarmUp, ComesBeforeTheSchedule) {
  Schedule schedule = of_kind(Schedule::Kind::cosine, 1, 10);
  schedule.warmup_steps = 4;
  expect_rates(schedule, {{0, 0.2}, {1, 0.4}, {2, 0.6}, {3, 0.8}, {4, 1.0}, {7, 0.5}, {10, 0}});
  schedule.kind = Schedule::Kind::constant;
  expect_rates(schedule, {{0, 0.2}, {3, 0.8}, {4, 1.0}, {1000, 1.0}});
}

// By hand: cuts after 5 and 10 steps of the run; the warm-up replaces the rates of the first 4.
TEST(WarmUp, MovesNoCutOfAStepSchedule) {
  Schedule schedule = of_kind(Schedule::Kind::step, 1, 20);
  schedule.period_batches = 5;
  schedule.warmup_steps = 4;
  expect_rates(schedule, {{0, 0.2}, {3, 0.8}, {4, 1}, {5, 0.1}, {9, 0.1}, {10, 0.01}});
  schedule.warmup_steps = 7;  // past the first cut
  expect_rates(schedule, {{5, 0.75}, {6, 0.875}, {7, 0.1}, {9, 0.1}, {10, 0.01}});
}

// By hand: 1 - 0.9^n and 1 - 0.999^n after n updates.
TEST(Clock, AdvancesRateAndCorrections) {
  Schedule schedule = of_kind(Schedule::Kind::step, 0.1, 10);
  schedule.period_batches = 2;
  StepState state;
  const float rates[] = {0.1F, 0.1F, 0.01F};
  const double first[] = {0.1, 0.19, 0.271}, second[] = {0.001, 0.001999, 0.002997001};
  for (int i = 0; i < 3; ++i) {
    tick(state, schedule, 0.9, 0.999);
    EXPECT_EQ(state.step, i + 1);
    EXPECT_FLOAT_EQ(state.learning_rate, rates[i]);
    EXPECT_FLOAT_EQ(state.bias_correction1, static_cast<float>(first[i]));
    EXPECT_FLOAT_EQ(state.bias_correction2, static_cast<float>(second[i]));
    EXPECT_EQ(state.loss_scale, 1);
    EXPECT_EQ(state.gradient_norm, 0) << "until it is computed";
    state.gradient_norm = 3;
  }
}

// Three steps an update: what changes, changes with the update, and an overflow in any of the three
// costs all of it.
TEST(Clock, CountsUpdatesWhereStepsAccumulate) {
  Schedule schedule = of_kind(Schedule::Kind::step, 0.1, 10);
  schedule.period_batches = 1;
  const LossScaling scaling{.enabled = true, .initial = 8};
  StepState state;
  for (int i = 0; i < 9; ++i) {
    tick(state, schedule, 0.9, 0.999, scaling, 3);
    EXPECT_EQ(state.step, i + 1);
    EXPECT_EQ(state.micro_step, i % 3);
    EXPECT_EQ(state.update, i % 3 == 2 ? 1U : 0U);
    EXPECT_FLOAT_EQ(state.learning_rate, static_cast<float>(0.1 * std::pow(0.1, i / 3)));
    EXPECT_EQ(state.overflow, i == 4 || i == 5 ? 1U : 0U) << "of the update at hand";
    EXPECT_EQ(state.skipped, i < 6 ? 0 : 1);
    EXPECT_EQ(state.loss_scale, i < 6 ? 8 : 4);
    EXPECT_EQ(state.gradient_factor, 1 / state.loss_scale);
    const int updates = i < 3 ? 1 : 2;  // the second is left out
    EXPECT_FLOAT_EQ(state.bias_correction1, static_cast<float>(1 - std::pow(0.9, updates)));
    if (i == 3) state.overflow = 1;
  }
}

// After three good updates in a row, up to the largest; an overflow halves it and ends the row.
TEST(Clock, GrowsTheLossScaleAfterGoodUpdatesInARow) {
  const LossScaling scaling{.enabled = true, .initial = 8, .interval = 3, .largest = 16};
  StepState state;
  std::vector<float> scales;
  for (int step = 1; step <= 12; ++step) {
    tick(state, of_kind(Schedule::Kind::constant, 0.1, 12), 0.9, 0.999, scaling);
    scales.push_back(state.loss_scale);
    if (step == 2) state.overflow = 1;
  }
  EXPECT_EQ(scales, (std::vector<float>{8, 8, 4, 4, 4, 8, 8, 8, 16, 16, 16, 16}));
}

}  // namespace
}  // namespace warpstep

// When a run has diverged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/trainer.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr float nan_loss = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite_loss = std::numeric_limits<float>::infinity();

StepRecord fifth(float loss, float scale, bool overflow) {
  StepRecord record{.step = 5, .epoch = 2, .step_in_epoch = 1, .steps_per_epoch = 4, .loss = loss};
  record.loss_scale = scale;
  record.overflow = overflow;
  return record;
}

TEST(Divergence, IsAGradientThatIsNotFiniteWhereNoScaleFalls) {
  EXPECT_THAT([] { require_sound(fifth(1, 1, true), false, 1); },
              ThrowsMessage<NumericError>(HasSubstr("gradients are not finite in step 5")));
  EXPECT_THAT([] { require_sound(fifth(nan_loss, 1, true), false, 1); },
              ThrowsMessage<NumericError>(HasSubstr("the loss is nan in step 5")));
}

TEST(Divergence, IsALossThatIsNotFiniteOrAScaleThatDoesNotHelp) {
  EXPECT_NO_THROW(require_sound(fifth(1, 1, false), true, 0));
  EXPECT_NO_THROW(require_sound(fifth(1, 1, true), true, 16));
  EXPECT_NO_THROW(require_sound(fifth(nan_loss, 1, true), true, 16)) << "no update was made of it";
  EXPECT_THAT([] { require_sound(fifth(infinite_loss, 1, false), true, 0); },
              ThrowsMessage<NumericError>(
                  HasSubstr("the loss is inf in step 5 (epoch 2, step 1 of 4, learning rate 0)")));
  EXPECT_THAT([] { require_sound(fifth(1, 0.5F, true), true, 17); },
              ThrowsMessage<NumericError>(AllOf(HasSubstr("gradients overflow in step 5"),
                                                HasSubstr("down to 0.5"),
                                                HasSubstr("the last 17 steps made no update"))));
  EXPECT_THAT([] { require_sound(fifth(nan_loss, 0.5F, true), true, 17); },
              ThrowsMessage<NumericError>(HasSubstr("the loss is nan in step 5")));
}

TEST(Divergence, WithLarsMayBeOfItsTrustCoefficient) {
  const std::string both = "training diverged: use a lower --trust, a lower --lr, a warm-up";
  EXPECT_THAT([] { require_sound(fifth(1, 1, true), false, 1, true); },
              ThrowsMessage<NumericError>(AllOf(
                  HasSubstr("gradients, or their products with LARS's rates, are not finite in "),
                  HasSubstr(both))));
  EXPECT_THAT([] { require_sound(fifth(1, 0.5F, true), true, 17, true); },
              ThrowsMessage<NumericError>(HasSubstr(both)));
  EXPECT_THAT([] { require_sound(fifth(nan_loss, 1, false), false, 0, true); },
              ThrowsMessage<NumericError>(HasSubstr(both)));
  const EvaluationRecord evaluation{.step = 5, .score = {.loss_sum = nan_loss}};
  EXPECT_THAT([&] { require_sound(evaluation, true); },
              ThrowsMessage<NumericError>(HasSubstr(both)));
}

// If every step overflows: the longest time that a run continues without an update.
TEST(Divergence, EndsSeventeenStepsAfterTheFirstLossScale) {
  StepState state;
  const LossScaling scaling{.enabled = true};
  int steps = 0;
  do {
    tick(state, {}, 0.9, 0.999, scaling);
    state.overflow = 1;
    ++steps;
  } while (state.loss_scale >= least_loss_scale);
  EXPECT_EQ(steps - 1, 17);
}

}  // namespace
}  // namespace warpstep

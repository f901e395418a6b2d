#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "engine/graph/ops/update.h"
#include "kernels/update/update.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::Floats;
using testing::random_values;

std::vector<Optimizer> optimizers() {
  using Kind = Optimizer::Kind;
  Optimizer sgd{.kind = Kind::sgd}, adam;
  Optimizer decayed = sgd;
  decayed.weight_decay = 0.05;
  Optimizer momentum = decayed;
  momentum.momentum = 0.9;
  Optimizer nesterov = momentum;
  nesterov.nesterov = true;
  Optimizer adam_decayed = adam;
  adam_decayed.weight_decay = 0.05;
  Optimizer adamw = adam_decayed;
  adamw.kind = Kind::adamw;
  adamw.beta1 = 0.8;
  adamw.beta2 = 0.95;
  adamw.epsilon = 1e-4;
  Optimizer rmsprop{.kind = Kind::rmsprop};
  Optimizer rmsprop_momentum = rmsprop;
  rmsprop_momentum.momentum = 0.9;
  rmsprop_momentum.weight_decay = 0.05;
  rmsprop_momentum.alpha = 0.9;
  return {sgd, decayed, momentum, nesterov, adam, adam_decayed, adamw, rmsprop, rmsprop_momentum};
}

StepState third_step() {
  StepState state;
  state.step = 3;
  state.learning_rate = 1e-2F;
  state.loss_scale = 512;
  state.gradient_factor = 1.0F / 512;
  state.bias_correction1 = 0.271F;
  state.bias_correction2 = 0.003F;
  return state;
}

class UpdateCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

// Everything that an update may change, one after the other.
struct Stored {
  Stored(DType dtype, std::size_t count)
      : parameters(random_values(count, 0.5F, 1)),
        first(random_values(count, 0.1F, 2)),
        second(squares(count)),
        copy(dtype, std::vector<float>(count, 7.0F)) {}
  static std::vector<float> squares(std::size_t count) {
    std::vector<float> v = random_values(count, 0.1F, 3);
    for (float& x : v) x = x * x;
    return v;
  }
  std::vector<float> all() const {
    std::vector<float> out;
    for (const std::vector<float>& part :
         {parameters.values(), first.values(), second.values(), copy.values()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }
  Array<float> parameters, first, second;
  Floats copy;
};

UpdateBuffers buffers(const Optimizer& o, const Stored& stored, const Floats& gradients,
                      const Array<StepState>& state, bool copies) {
  return {.parameters = stored.parameters.data(),
          .gradients = gradients.data(),
          .state = state.data(),
          .first = o.moments() > 0 ? stored.first.data() : nullptr,
          .second = o.moments() > 1 ? stored.second.data() : nullptr,
          .copy = copies ? stored.copy.data() : nullptr};
}

TEST_P(UpdateCuda, LeavesEverythingAfterAnOverflow) {
  StepState state = third_step();
  state.overflow = 1;
  const Array<StepState> on_device(std::vector<StepState>{state});
  const Floats gradients(dtype(), random_values(1027, 1, 4));
  for (const Optimizer& o : optimizers()) {
    const Stored stored(dtype(), 1027);
    const std::vector<float> before = stored.all();
    update(update_rule(o), buffers(o, stored, gradients, on_device, true), 1027, dtype(), dtype(),
           nullptr);
    EXPECT_EQ(stored.all(), before);
  }
}

TEST_P(UpdateCuda, GivesTheSameBitsDownwards) {
  const Array<StepState> state(std::vector<StepState>{third_step()});
  const Floats gradients(dtype(), random_values(5027, 1, 4));
  for (const Optimizer& o : optimizers()) {
    const Stored up(dtype(), 5027), down(dtype(), 5027);
    UpdateBuffers of_down = buffers(o, down, gradients, state, true);
    of_down.downwards = true;
    update(update_rule(o), buffers(o, up, gradients, state, true), 5027, dtype(), dtype(), nullptr);
    update(update_rule(o), of_down, 5027, dtype(), dtype(), nullptr);
    const std::vector<float> expected = up.all(), actual = down.all();  // roots of squares below 0
    EXPECT_EQ(std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)), 0);
  }
}

// To the nearest bf16 it would stay 1; with the same random numbers in each update it would fall by
// 0.08 instead of 0.095. The mean of 16,384 has a deviation of 0.14 % of that.
TEST_P(UpdateCuda, AMeanOfSquaresInBf16FallsThoughEachStepIsBelowItsRounding) {
  constexpr std::int64_t count = 16384;
  constexpr int updates = 100;
  const Optimizer adam;
  const Floats gradients(dtype(), std::vector<float>(count, 0.0F)),
      first(DType::bf16, std::vector<float>(count, 0.0F)),
      second(DType::bf16, std::vector<float>(count, 1.0F));
  const Array<float> parameters(std::vector<float>(count, 0.5F));
  const Array<StepState> state(std::vector<StepState>{StepState{}});
  for (int i = 0; i < updates; ++i) {
    clock({}, adam.beta1, adam.beta2, {}, 1, {}, state.data(), nullptr);
    update(update_rule(adam),
           {.parameters = parameters.data(),
            .gradients = gradients.data(),
            .state = state.data(),
            .first = first.data(),
            .second = second.data(),
            .moments = DType::bf16},
           count, dtype(), dtype(), nullptr);
  }
  double mean = 0;
  for (const float v : second.values()) mean += static_cast<double>(v) / static_cast<double>(count);
  const double expected = std::pow(0.999, updates);
  EXPECT_NEAR(mean, expected, 0.01 * (1 - expected));
  EXPECT_EQ(parameters.values(), std::vector<float>(count, 0.5F));
}

TEST_P(UpdateCuda, FindsGradientsThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto overflow = [&](const std::vector<float>& values) {
    const Floats gradients(dtype(), values);
    const Array<StepState> state(std::vector<StepState>{StepState{}});
    const auto count = static_cast<std::int64_t>(values.size());
    const testing::Memory workspace(check_gradients_workspace(count, dtype()));
    const Array<std::uint32_t> ticket(std::vector<std::uint32_t>{0});
    check_gradients({gradients.data(), state.data(), workspace.data(), ticket.data()}, count,
                    dtype(), 0, nullptr);
    return state.value().overflow;
  };
  // The largest of f16; below it a bf16 with all but the last bit of the exponent.
  std::vector<float> fine = random_values(9001, 65504, 5);
  fine[17] = 65504;
  EXPECT_EQ(overflow(fine), 0U);
  EXPECT_EQ(overflow({}), 0U);
  for (const std::size_t count : {1U, 7U, 8U, 9U, 4096U, 8193U, 9001U})
    for (const std::size_t at : {std::size_t{0}, std::size_t{count} / 2, std::size_t{count} - 1})
      for (const float bad : {infinity, -infinity, std::nanf("")}) {
        std::vector<float> values(fine.begin(), fine.begin() + std::ptrdiff_t(count));
        EXPECT_EQ(overflow(values), 0U);
        values[at] = bad;
        EXPECT_EQ(overflow(values), 1U) << bad << " at " << at << " of " << count;
      }
}

TEST_P(UpdateCuda, LarsLeavesGradientsThatAreNotNumbersSo) {
  for (const std::size_t count : {3, 8}) {
    const Array<StepState> state(std::vector<StepState>(1, third_step()));
    const Array<float> parameters(random_values(count, 0.5F, 1));
    std::vector<float> values = random_values(count, 0.5F, 2);
    values.back() = NAN;
    const Floats gradients(dtype(), values);
    const Array<std::byte> workspace(lars_workspace);
    lars({.trust = 1, .decay = 0.1, .epsilon = 0}, parameters.data(), gradients.data(),
         static_cast<std::int64_t>(count), dtype(), state.data(), workspace.data(), nullptr);
    for (const float value : gradients.values()) ASSERT_TRUE(std::isnan(value));
    EXPECT_EQ(state.value().overflow, 1U);
  }
}

// Of many blocks one finds an overflow, and all scale: by 2.
TEST(LarsCuda, FindsWhatDoesNotFitFp16) {
  for (const float largest : {30000.0F, 40000.0F}) {
    const std::size_t count = 100'003;
    const Array<StepState> state(std::vector<StepState>(1, third_step()));
    const Array<float> parameters(std::vector<float>(count, 1.0F));
    std::vector<float> values(count, 1.0F);
    values[1] = largest;
    const Floats gradients(DType::f16, values);
    const Array<std::byte> workspace(lars_workspace);
    const double norm = std::sqrt(static_cast<double>(largest) * static_cast<double>(largest) +
                                  static_cast<double>(count - 1));
    const double trust = 2 * norm / 512 / std::sqrt(static_cast<double>(count));
    lars({.trust = trust, .decay = 0, .epsilon = 0}, parameters.data(), gradients.data(),
         static_cast<std::int64_t>(count), DType::f16, state.data(), workspace.data(), nullptr);
    std::vector<float> scaled = gradients.values();
    const bool fits = largest < 32768;
    EXPECT_EQ(std::isfinite(scaled[1]), fits);
    EXPECT_EQ(state.value().overflow, fits ? 0U : 1U);
    scaled[1] = 2;
    for (const float value : scaled) ASSERT_NEAR(value, 2, 2e-3F);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, UpdateCuda, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

TEST(ClockCuda, TicksAsTheHost) {
  using Kind = Schedule::Kind;
  for (const Kind kind : {Kind::constant, Kind::step, Kind::cosine, Kind::one_cycle}) {
    Schedule schedule;
    schedule.kind = kind;
    schedule.peak = 0.1;
    schedule.warmup_steps = kind == Kind::one_cycle ? 0 : 3;
    schedule.total_steps = 20;
    schedule.period_batches = 5;
    const LossScaling scaling{.enabled = true, .interval = 4};
    StepState expected;
    const Array<StepState> state(std::vector<StepState>{expected});
    for (int step = 0; step < 25; ++step) {
      tick(expected, schedule, 0.9, 0.999, scaling);
      clock(schedule, 0.9, 0.999, scaling, 1, {}, state.data(), nullptr);
      const StepState actual = state.value();
      EXPECT_EQ(actual.step, expected.step);
      EXPECT_FLOAT_EQ(actual.learning_rate, expected.learning_rate);
      EXPECT_FLOAT_EQ(actual.bias_correction1, expected.bias_correction1);
      EXPECT_FLOAT_EQ(actual.bias_correction2, expected.bias_correction2);
      EXPECT_EQ(actual.loss_scale, expected.loss_scale);
      EXPECT_EQ(actual.good_steps, expected.good_steps);
    }
  }
}

TEST(ReportCuda, WritesItsPlaceInTheRing) {
  StepState state = third_step();
  state.step = report_ring + 2;
  state.skipped = 5;
  state.overflow = 1;
  const Array<StepState> on_device(std::vector<StepState>{state});
  const Array<StepReport> ring(std::vector<StepReport>(idx(report_ring)));
  const Array<float> loss(std::vector<float>{1.5F});
  const Array<std::int32_t> correct(std::vector<std::int32_t>{77});
  report(loss.data(), correct.data(), on_device.data(), ring.data(), nullptr);
  const std::vector<StepReport> reports = ring.values();
  for (std::size_t i = 0; i < reports.size(); ++i)
    EXPECT_EQ(reports[i].step, i == 2 ? state.step : 0);
  EXPECT_EQ(reports[2].loss, 1.5F);
  EXPECT_EQ(reports[2].correct, 77);
  EXPECT_EQ(reports[2].learning_rate, state.learning_rate);
  EXPECT_EQ(reports[2].loss_scale, state.loss_scale);
  EXPECT_EQ(reports[2].skipped, 5);
  EXPECT_EQ(reports[2].overflow, 1U);
}

}  // namespace
}  // namespace warpstep::cuda

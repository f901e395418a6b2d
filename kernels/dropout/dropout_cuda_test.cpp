#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/random.h"
#include "kernels/dropout/dropout.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::Floats;

class DropoutCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

StepState state_of(std::int64_t step, std::uint64_t seed) {
  StepState state;
  state.draw = step;
  state.seed = seed;
  return state;
}

// The rule of engine/graph/ops/dropout.h.
bool is_kept(const DropoutShape& s, const StepState& state, std::uint64_t e) {
  const std::uint64_t at = static_cast<std::uint64_t>((state.draw - 1) * s.rows * s.columns) + e;
  const auto words = draw(state.seed, Purpose::dropout, s.layer, at / 4);
  return static_cast<double>(uniform(words[at % 4])) >= s.rate;
}

// A rate that is no multiple of 2^-24 is not rounded; neither is what is dropped multiplied. Steps
// and seeds of more than 32 bits; in place and not.
TEST_P(DropoutCuda, DropsNotANumber) {
  const DropoutShape shape{.rows = 64, .columns = 8, .stored = 8, .rate = 1.0 / 3, .layer = 70000};
  for (const StepState& state :
       {state_of(5, 11), state_of(123456, 0xfedcba9876543210), state_of((1LL << 31) + 5, 1)}) {
    SCOPED_TRACE(state.draw);
    const Floats x(dtype(), std::vector<float>(512, std::nanf("")));
    const Array<StepState> device(std::vector<StepState>{state});
    const Floats y(dtype(), 512);
    dropout(shape, x.data(), device.data(), y.data(), dtype(), nullptr);
    dropout(shape, x.data(), device.data(), x.data(), dtype(), nullptr);
    const std::vector<float> values = y.values(), in_place = x.values();
    for (std::size_t i = 0; i < 512; ++i) {
      EXPECT_EQ(std::isnan(values[i]), is_kept(shape, state, i));
      EXPECT_EQ(std::isnan(in_place[i]), is_kept(shape, state, i));
    }
  }
}

TEST_P(DropoutCuda, OfNoRowsIsNothing) {
  dropout({.rows = 0, .columns = 8, .stored = 8, .rate = 0.5}, nullptr, nullptr, nullptr, dtype(),
          nullptr);
}

INSTANTIATE_TEST_SUITE_P(DTypes, DropoutCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

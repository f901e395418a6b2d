#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/random.h"
#include "kernels/dropout/dropout.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Floats;
using testing::random_values;
using testing::settled;

class DropoutCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

StepState state_of(std::int64_t step, std::uint64_t seed) {
  StepState state;
  state.step = step;
  state.seed = seed;
  return state;
}

// The rule of engine/graph/ops/dropout.h.
bool is_kept(const DropoutShape& s, const StepState& state, std::uint64_t e) {
  const auto words = draw(state.seed, Purpose::dropout, s.layer,
                          static_cast<std::uint64_t>(state.step) << 32 | e / 4);
  return static_cast<double>(uniform(words[e % 4])) >= s.rate;
}

// Rows of whole vectors, of whole draws and padding, of neither, and rows that are not padded.
std::vector<DropoutShape> shapes() {
  return {{.rows = 37, .columns = 64, .stored = 64, .rate = 0.5, .layer = 0},
          {.rows = 19, .columns = 12, .stored = 16, .rate = 0.25, .layer = 1},
          {.rows = 50, .columns = 11, .stored = 16, .rate = 0.1, .layer = 2},
          {.rows = 40, .columns = 3, .stored = 3, .rate = 0.9, .layer = 3},
          {.rows = 300, .columns = 7, .stored = 8, .rate = 0.5, .layer = 70000},
          {.rows = 4, .columns = 8, .stored = 8, .rate = 0, .layer = 0},
          {.rows = 0, .columns = 8, .stored = 8, .rate = 0.5, .layer = 0}};
}

TEST_P(DropoutCuda, DropsWhatTheRuleSays) {
  for (const DropoutShape& shape : shapes())
    for (const StepState& state :
         {state_of(1, 7), state_of(123456, 0xfedcba9876543210), state_of((1LL << 31) + 5, 1)}) {
      SCOPED_TRACE(::testing::Message() << shape.rows << "x" << shape.columns << " of "
                                        << shape.stored << " in step " << state.step);
      const auto count = idx(shape.rows * shape.stored), stored = idx(shape.stored);
      const auto columns = idx(shape.columns);
      std::vector<float> values = random_values(count, 1, 1);
      std::vector<double> expected(count);
      for (std::size_t i = 0; i < count; ++i)
        if (i % stored >= columns) values[i] = 0;
      const Floats x(dtype(), values);
      values = x.values();
      for (std::size_t i = 0; i < count; ++i)
        if (i % stored < columns && is_kept(shape, state, i / stored * columns + i % stored))
          expected[i] = static_cast<double>(values[i]) / (1 - shape.rate);
      const Array<StepState> device(std::vector<StepState>{state});
      expect_near(settled([&] {
                    const Floats y(dtype(), count);
                    dropout(shape, x.data(), device.data(), y.data(), dtype(), nullptr);
                    return y.values();
                  }),
                  expected, epsilon(dtype()), 1e-7);
      dropout(shape, x.data(), device.data(), x.data(), dtype(), nullptr);
      expect_near(x.values(), expected, epsilon(dtype()), 1e-7);
    }
}

// A rate that is no multiple of 2^-24 is not rounded; neither is what is dropped multiplied.
TEST_P(DropoutCuda, DropsNotANumber) {
  const DropoutShape shape{.rows = 64, .columns = 8, .stored = 8, .rate = 1.0 / 3, .layer = 9};
  const StepState state = state_of(5, 11);
  const Floats x(dtype(), std::vector<float>(512, std::nanf("")));
  const Array<StepState> device(std::vector<StepState>{state});
  const Floats y(dtype(), 512);
  dropout(shape, x.data(), device.data(), y.data(), dtype(), nullptr);
  const std::vector<float> values = y.values();
  for (std::size_t i = 0; i < 512; ++i) EXPECT_EQ(std::isnan(values[i]), is_kept(shape, state, i));
}

INSTANTIATE_TEST_SUITE_P(DTypes, DropoutCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

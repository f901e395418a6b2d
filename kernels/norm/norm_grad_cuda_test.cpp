#include <gtest/gtest.h>

#include "kernels/norm/norm.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::Floats;
using testing::Memory;
using testing::random_values;

// Which of its operands an adjoint has.
struct Variant {
  bool masked, two, shortcut, both = false;
};

std::vector<float> images(const NormShape& s, float scale, unsigned seed) {
  std::vector<float> x = random_values(idx(s.rows * s.channels), scale, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (static_cast<std::int64_t>(i) % s.channels >= s.real) x[i] = 0;
  return x;
}

class NormGradCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

// What the adjoint reads, and what it gives: d_x, d_gamma, d_beta, d_shortcut.
struct Adjoint {
  Adjoint(const NormShape& s, DType dtype)
      : shape(s),
        d_y(dtype, images(s, 1, 1)),
        second(dtype, images(s, 1, 2)),
        x(dtype, images(s, 2, 3)),
        y(dtype, images(s, 1, 4)),
        shortcut(dtype, images(s, 2, 8)),
        gamma(images(one_row(), 1, 5)),
        mean(images(one_row(), 0.3F, 6)),
        inv_std(images(one_row(), 0.5F, 7)) {}

  NormShape one_row() const { return {.rows = 1, .channels = shape.channels, .real = shape.real}; }

  std::vector<float> given(const Variant& v, DType dtype) const {
    const std::size_t count = idx(shape.rows * shape.channels), channels = idx(shape.channels);
    const Floats d_x(dtype, count), d_gamma(dtype, channels), d_beta(dtype, channels),
        d_shortcut(dtype, count);
    const Floats shortcut_d_gamma(dtype, channels), shortcut_d_beta(dtype, channels);
    const Memory workspace(batch_norm_grad_workspace(shape, dtype, v.both));
    const std::vector<std::uint32_t> zeros(batch_norm_tickets(shape, dtype));
    const Array<std::uint32_t> tickets(zeros);
    const NormGradBuffers buffers{.d_y = d_y.data(),
                                  .second = v.two ? second.data() : nullptr,
                                  .x = x.data(),
                                  .y = v.masked ? y.data() : nullptr,
                                  .gamma = gamma.data(),
                                  .mean = mean.data(),
                                  .inv_std = inv_std.data(),
                                  .d_x = d_x.data(),
                                  .d_gamma = d_gamma.data(),
                                  .d_beta = d_beta.data(),
                                  .d_shortcut = v.shortcut ? d_shortcut.data() : nullptr,
                                  .shortcut = {.x = v.both ? shortcut.data() : nullptr,
                                               .gamma = mean.data(),
                                               .mean = inv_std.data(),
                                               .inv_std = gamma.data(),
                                               .d_gamma = shortcut_d_gamma.data(),
                                               .d_beta = shortcut_d_beta.data()}};
    batch_norm_grad_sum(shape, buffers, dtype, workspace.data(), tickets.data(), 0, nullptr);
    batch_norm_grad_finish(shape, buffers, dtype, workspace.data(), nullptr);
    EXPECT_EQ(tickets.values(), zeros);
    std::vector<float> all = d_x.values();
    for (const Floats* more : {&d_gamma, &d_beta, &d_shortcut}) {
      const std::vector<float> values = more->values();
      if (more != &d_shortcut || v.shortcut) all.insert(all.end(), values.begin(), values.end());
    }
    for (const Floats* more : {&shortcut_d_gamma, &shortcut_d_beta}) {
      const std::vector<float> values = more->values();
      if (v.both) all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  NormShape shape;
  Floats d_y, second, x, y, shortcut;
  Array<float> gamma, mean, inv_std;
};

TEST_P(NormGradCuda, LeavesPaddingZero) {
  const NormShape shape{.rows = 70, .channels = 16, .real = 9};
  const Adjoint adjoint(shape, dtype());
  for (const bool both : {false, true}) {
    const std::vector<float> all = adjoint.given({true, true, true, both}, dtype());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % 16 >= 9) {
        ASSERT_EQ(all[i], 0) << i;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, NormGradCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

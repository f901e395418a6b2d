#include <gtest/gtest.h>

#include <cmath>

#include "kernels/norm/norm.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Floats;
using testing::Memory;
using testing::random_values;
using testing::settled;

// Which of its operands an adjoint has.
struct Variant {
  bool masked, two, shortcut;
};
constexpr Variant variants[] = {{false, false, false}, {false, true, false}, {true, false, false},
                                {true, true, false},   {true, false, true},  {true, true, true}};

std::vector<NormShape> shapes() {
  return {{.rows = 2, .channels = 8, .real = 8},
          {.rows = 301, .channels = 24, .real = 21},
          {.rows = 1027, .channels = 64, .real = 64},
          {.rows = 130, .channels = 264, .real = 264}};
}

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

// What the adjoint reads, and in plain loops what it gives: d_x, d_gamma, d_beta, d_shortcut.
struct Adjoint {
  Adjoint(const NormShape& s, DType dtype)
      : shape(s),
        d_y(dtype, images(s, 1, 1)),
        second(dtype, images(s, 1, 2)),
        x(dtype, images(s, 2, 3)),
        y(dtype, images(s, 1, 4)),
        gamma(images(one_row(), 1, 5)),
        mean(images(one_row(), 0.3F, 6)),
        inv_std(images(one_row(), 0.5F, 7)) {}

  NormShape one_row() const { return {.rows = 1, .channels = shape.channels, .real = shape.real}; }

  // g, one an element; of the shortcut's gradient what it is stored as.
  std::vector<double> gradient(const Variant& v, DType dtype) const {
    const std::vector<float> a = d_y.values(), b = second.values(), of = y.values();
    std::vector<float> g(a.size());
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = v.masked && !(of[i] > 0) ? 0 : a[i] + (v.two ? b[i] : 0);
    if (v.shortcut) g = Floats(dtype, g).values();
    return {g.begin(), g.end()};
  }

  std::vector<double> expected(const Variant& v, DType dtype) const {
    const std::size_t channels = idx(shape.channels);
    const std::vector<double> g = gradient(v, dtype);
    const std::vector<float> of = x.values(), m = mean.values(), s = inv_std.values(),
                             scale = gamma.values();
    const auto h = [&](std::size_t i) {
      const std::size_t c = i % channels;
      return (static_cast<double>(of[i]) - static_cast<double>(m[c])) * static_cast<double>(s[c]);
    };
    std::vector<double> d_gamma(channels), d_beta(channels), all(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      d_beta[i % channels] += g[i];
      d_gamma[i % channels] += g[i] * h(i);
    }
    const auto rows = static_cast<double>(shape.rows);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const std::size_t c = i % channels;
      all[i] = static_cast<double>(scale[c]) * static_cast<double>(s[c]) *
               (g[i] - d_beta[c] / rows - h(i) * d_gamma[c] / rows);
    }
    all.insert(all.end(), d_gamma.begin(), d_gamma.end());
    all.insert(all.end(), d_beta.begin(), d_beta.end());
    if (v.shortcut) all.insert(all.end(), g.begin(), g.end());
    return all;
  }

  std::vector<float> given(const Variant& v, DType dtype) const {
    const std::size_t count = idx(shape.rows * shape.channels), channels = idx(shape.channels);
    const Floats d_x(dtype, count), d_gamma(dtype, channels), d_beta(dtype, channels),
        d_shortcut(dtype, count);
    const Memory workspace(batch_norm_grad_workspace(shape, dtype));
    const std::vector<std::uint32_t> zeros(batch_norm_tickets(shape, dtype));
    const Array<std::uint32_t> tickets(zeros);
    batch_norm_grad(shape,
                    {.d_y = d_y.data(),
                     .second = v.two ? second.data() : nullptr,
                     .x = x.data(),
                     .y = v.masked ? y.data() : nullptr,
                     .gamma = gamma.data(),
                     .mean = mean.data(),
                     .inv_std = inv_std.data(),
                     .d_x = d_x.data(),
                     .d_gamma = d_gamma.data(),
                     .d_beta = d_beta.data(),
                     .d_shortcut = v.shortcut ? d_shortcut.data() : nullptr},
                    dtype, workspace.data(), tickets.data(), nullptr);
    EXPECT_EQ(tickets.values(), zeros);
    std::vector<float> all = d_x.values();
    for (const Floats* more : {&d_gamma, &d_beta, &d_shortcut}) {
      const std::vector<float> values = more->values();
      if (more != &d_shortcut || v.shortcut) all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  NormShape shape;
  Floats d_y, second, x, y;
  Array<float> gamma, mean, inv_std;
};

TEST_P(NormGradCuda, GivesAllGradients) {
  for (const NormShape& shape : shapes()) {
    const Adjoint adjoint(shape, dtype());
    for (const Variant& v : variants) {
      SCOPED_TRACE(::testing::Message()
                   << shape.rows << "x" << shape.channels << " masked " << v.masked << " two "
                   << v.two << " shortcut " << v.shortcut);
      expect_near(settled([&] { return adjoint.given(v, dtype()); }), adjoint.expected(v, dtype()),
                  epsilon(dtype()), 1e-4);
    }
  }
}

TEST_P(NormGradCuda, LeavesPaddingZero) {
  const NormShape shape{.rows = 70, .channels = 16, .real = 9};
  const Adjoint adjoint(shape, dtype());
  const std::vector<float> all = adjoint.given({true, true, true}, dtype());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 16 >= 9) {
      ASSERT_EQ(all[i], 0) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(DTypes, NormGradCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

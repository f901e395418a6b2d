#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
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

// Rows of values, zero beyond the real channels.
std::vector<float> images(const NormShape& s, float scale, unsigned seed, float shift = 0) {
  std::vector<float> x = random_values(idx(s.rows * s.channels), scale, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<std::int64_t>(i) % s.channels < s.real ? x[i] + shift : 0;
  return x;
}

std::vector<float> per_channel(const NormShape& s, float scale, unsigned seed, float shift = 0) {
  return images({.rows = 1, .channels = s.channels, .real = s.real}, scale, seed, shift);
}

struct Moments {
  std::vector<double> mean, var;
};

Moments moments(const NormShape& s, const std::vector<float>& x) {
  const std::size_t channels = idx(s.channels);
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  const auto rows = static_cast<double>(s.rows);
  for (std::size_t i = 0; i < x.size(); ++i)
    m.mean[i % channels] += static_cast<double>(x[i]) / rows;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double apart = static_cast<double>(x[i]) - m.mean[i % channels];
    m.var[i % channels] += apart * apart / rows;
  }
  return m;
}

// Everything that a norm reads, in device memory, and what was put there.
struct Norm {
  Norm(const NormShape& s, DType dtype, const std::vector<float>& numbers)
      : shape(s),
        x(dtype, numbers),
        shortcut(dtype, images(s, 2, 12)),
        gamma(per_channel(s, 0.5F, 13, 1)),
        beta(per_channel(s, 1, 14)),
        expected(moments(s, x.values())) {}

  double y(std::size_t i, const Moments& of, bool adds, bool relu) const {
    const std::size_t c = i % idx(shape.channels);
    const double scale = static_cast<double>(gamma.values()[c]) /
                         std::sqrt(of.var[c] + static_cast<double>(shape.epsilon));
    const double plain = (static_cast<double>(x_values[i]) - of.mean[c]) * scale +
                         static_cast<double>(beta.values()[c]) +
                         (adds ? static_cast<double>(shortcut_values[i]) : 0);
    return relu && !(plain > 0) ? 0 : plain;
  }

  NormShape shape;
  Floats x, shortcut;
  Array<float> gamma, beta;
  Moments expected;
  std::vector<float> x_values = x.values(), shortcut_values = shortcut.values();
};

std::vector<std::uint32_t> zeros(std::size_t count) {
  return std::vector<std::uint32_t>(count);
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}
void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

class NormCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }

  // y, mean, inv_std and the running statistics, which begin as 0.5 and 2.
  std::vector<float> trained(const Norm& norm, bool adds) const {
    const std::size_t count = idx(norm.shape.rows * norm.shape.channels);
    const std::size_t channels = idx(norm.shape.channels), real = idx(norm.shape.real);
    const Floats y(dtype(), count);
    const Array<float> mean(channels), inv_std(channels);
    const Array<float> running_mean(std::vector<float>(real, 0.5F));
    const Array<float> running_var(std::vector<float>(real, 2));
    const Memory workspace(batch_norm_workspace(norm.shape, dtype()));
    const Array<std::uint32_t> tickets(zeros(batch_norm_tickets(norm.shape, dtype())));
    const NormBuffers buffers{.x = norm.x.data(),
                              .gamma = norm.gamma.data(),
                              .beta = norm.beta.data(),
                              .running_mean = running_mean.data(),
                              .running_var = running_var.data(),
                              .shortcut = adds ? norm.shortcut.data() : nullptr,
                              .y = y.data(),
                              .mean = mean.data(),
                              .inv_std = inv_std.data()};
    batch_norm_sum(norm.shape, buffers, dtype(), workspace.data(), tickets.data(), 0, nullptr);
    batch_norm_apply(norm.shape, buffers, dtype(), nullptr);
    EXPECT_EQ(tickets.values(), zeros(batch_norm_tickets(norm.shape, dtype())));
    std::vector<float> all = y.values();
    for (const auto* more : {&mean, &inv_std, &running_mean, &running_var})
      append(all, more->values());
    return all;
  }

  std::vector<double> expected_training(const Norm& norm, bool adds) const {
    const NormShape& s = norm.shape;
    std::vector<double> all(idx(s.rows * s.channels)), inv_std, mean, var;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = norm.y(i, norm.expected, adds, s.relu);
    const double momentum = s.momentum, rows = static_cast<double>(s.rows);
    for (std::size_t c = 0; c < idx(s.channels); ++c) {
      const bool real = c < idx(s.real);
      const double unbiased = norm.expected.var[c] * rows / (rows - 1);
      const auto epsilon = static_cast<double>(s.epsilon);
      inv_std.push_back(real ? 1 / std::sqrt(norm.expected.var[c] + epsilon) : 0);
      if (!real) continue;
      mean.push_back(0.5 + momentum * (norm.expected.mean[c] - 0.5));
      var.push_back(2 + momentum * (unbiased - 2));
    }
    append(all, norm.expected.mean);
    for (const auto* more : {&inv_std, &mean, &var}) append(all, *more);
    return all;
  }

  void expect_training(const Norm& norm, bool adds, double absolute) const {
    expect_near(settled([&] { return trained(norm, adds); }), expected_training(norm, adds),
                epsilon(dtype()), absolute);
  }
};

// In f32 means of squares would have lost everything.
TEST_P(NormCuda, LosesNothingToALargeMean) {
  const NormShape shape{.rows = 2051, .channels = 24, .real = 21};  // and padding
  const float mean = dtype() == DType::f32 ? 1e4F : 300;
  const Norm norm(shape, dtype(), images(shape, dtype() == DType::f32 ? 1 : 30, 2, mean));
  // A mean of 1e4 is rounded by up to 5e-4, a thousandth of the deviation.
  expect_training(norm, false, 2e-3);
}

// The first number of a channel is where its threads measure from.
TEST_P(NormCuda, LosesNothingToAnOutlier) {
  const NormShape shape{.rows = 4100, .channels = 8, .real = 8};
  for (const std::size_t outlier : {std::size_t{0}, idx(shape.rows - 1)}) {
    std::vector<float> x = images(shape, 1, 3);
    for (std::size_t c = 0; c < 8; ++c) x[outlier * 8 + c] = 1000;
    const Norm norm(shape, dtype(), x);
    expect_training(norm, false, 1e-3);
  }
}

TEST_P(NormCuda, RefusesChannelsThatAreNoWholeVectors) {
  const NormShape shape{.rows = 4, .channels = 3, .real = 3};
  EXPECT_THROW(batch_norm_sum(shape, {}, dtype(), nullptr, nullptr, 0, nullptr), DeviceError);
  EXPECT_THROW(batch_norm_apply(shape, {}, dtype(), nullptr), DeviceError);
  EXPECT_THROW(batch_norm_inference(shape, {}, dtype(), nullptr), DeviceError);
  EXPECT_THROW(batch_norm_grad_sum(shape, {}, dtype(), nullptr, nullptr, 0, nullptr), DeviceError);
  EXPECT_THROW(batch_norm_grad_finish(shape, {}, dtype(), nullptr, nullptr), DeviceError);
}

INSTANTIATE_TEST_SUITE_P(DTypes, NormCuda, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

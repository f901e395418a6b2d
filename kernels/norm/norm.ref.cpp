// Batch norm and its adjoint in double, alone and with the max pool after it: two passes over each
// channel.
#include <array>
#include <cmath>
#include <vector>

#include "kernels/pool/pool.ref.h"

namespace warpstep::ref {
namespace {

struct Statistics {
  double mean = 0, variance = 0;  // biased
};

Statistics statistics(const double* x, std::int64_t rows, std::int64_t channels) {
  Statistics s;
  const auto n = static_cast<double>(rows);
  for (std::int64_t r = 0; r < rows; ++r) s.mean += x[r * channels];
  s.mean /= n;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double d = x[r * channels] - s.mean;
    s.variance += d * d / n;
  }
  return s;
}

void move(double& running, double statistic, double momentum) {
  running += momentum * (statistic - running);
}

// Of channel c, from the gradient g of the norm's result in each row. in: x, gamma, mean, inv_std;
// out: d_x, d_gamma, d_beta.
void gradient_of_norm(const std::vector<double>& g, std::int64_t c, std::int64_t channels,
                      void* const* in, const std::array<void*, 3>& out) {
  const double *x = as<double>(in[0]), gamma = as<double>(in[1])[c], mean = as<double>(in[2])[c],
               inv_std = as<double>(in[3])[c];
  const auto n = static_cast<double>(g.size());
  const auto h = [&](std::size_t r) { return (x[idx(c) + r * idx(channels)] - mean) * inv_std; };
  double d_gamma = 0, d_beta = 0;
  for (std::size_t r = 0; r < g.size(); ++r) {
    d_beta += g[r];
    d_gamma += g[r] * h(r);
  }
  as<double>(out[1])[c] = d_gamma;
  as<double>(out[2])[c] = d_beta;
  for (std::size_t r = 0; r < g.size(); ++r)
    as<double>(out[0])[idx(c) + r * idx(channels)] =
        gamma * inv_std * (g[r] - d_beta / n - h(r) * d_gamma / n);
}

// With the operands and results of the op, of images of this shape.
void normalise(const BatchNorm& op, const Shape& shape, const Buffers& b) {
  const std::int64_t channels = shape[3], rows = shape.count() / channels;
  const double *x = as<double>(b.in[0]), *gamma = as<double>(b.in[1]), *beta = as<double>(b.in[2]);
  double *running_mean = as<double>(b.in[3]), *running_var = as<double>(b.in[4]);
  const double* shortcut = op.add ? as<double>(b.in[5]) : nullptr;
  double* y = as<double>(b.out[0]);
  for (std::int64_t c = 0; c < channels; ++c) {
    Statistics s{running_mean[c], running_var[c]};
    if (op.training) {
      const auto n = static_cast<double>(rows);
      s = statistics(x + c, rows, channels);
      move(running_mean[c], s.mean, op.momentum);
      move(running_var[c], s.variance * n / (n - 1), op.momentum);
    }
    const double inv_std = 1 / std::sqrt(s.variance + op.epsilon);
    if (op.training) {
      as<double>(b.out[1])[c] = s.mean;
      as<double>(b.out[2])[c] = inv_std;
    }
    for (std::int64_t i = c; i < rows * channels; i += channels) {
      y[i] = gamma[c] * (x[i] - s.mean) * inv_std + beta[c];
      if (shortcut) y[i] += shortcut[i];
      if (op.relu) y[i] = rectified(y[i]);
    }
  }
}

void norm_gradients(const BatchNormGrad& op, const Shape& shape, const Buffers& b) {
  const std::int64_t channels = shape[3], rows = shape.count() / channels;
  const std::size_t shortcut = op.shortcut_operand();
  const double* d_y = as<double>(b.in[0]);
  const double* y = op.norm.relu ? as<double>(b.in[5]) : nullptr;
  const double* second = op.sum ? as<double>(b.in[op.norm.relu ? 6 : 5]) : nullptr;
  std::vector<double> g(idx(rows));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = r * channels + c;
      g[idx(r)] = d_y[i] + (second ? second[i] : 0);
      if (y && y[i] <= 0) g[idx(r)] = 0;
    }
    gradient_of_norm(g, c, channels, &b.in[1], {b.out[0], b.out[1], b.out[2]});
    if (op.shortcut_norm)
      gradient_of_norm(g, c, channels, &b.in[shortcut], {b.out[3], b.out[4], b.out[5]});
    else if (op.gives_shortcut())
      for (std::int64_t r = 0; r < rows; ++r) as<double>(b.out[3])[r * channels + c] = g[idx(r)];
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNorm& op, const Operands& operands) {
  return host_kernel("loops",
                     [op, x = operands.in_shape(0)](const Buffers& b) { normalise(op, x, b); });
}

std::unique_ptr<Kernel> bind(const BatchNormGrad& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0)](const Buffers& b) { norm_gradients(op, x, b); });
}

std::unique_ptr<Kernel> bind(const NormPool& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0), y = operands.out_shape()](const Buffers& b) {
        std::vector<double> normed(idx(x.count()));
        const std::array<void*, 3> out{normed.data(), b.out[2], b.out[3]};
        normalise(op.norm, x, {.in = b.in, .out = out});
        pool_maxima(op.pool, x, y, normed.data(), as<double>(b.out[0]), as<std::uint8_t>(b.out[1]));
      });
}

std::unique_ptr<Kernel> bind(const NormPoolGrad& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(2), y = operands.in_shape(0)](const Buffers& b) {
        std::vector<double> d_normed(idx(x.count()));
        spread_to_maxima(op.pool, x, y, as<double>(b.in[0]), as<std::uint8_t>(b.in[1]),
                         d_normed.data());
        const std::array<void*, 5> in{d_normed.data(), b.in[2], b.in[3], b.in[4], b.in[5]};
        norm_gradients({}, x, {.in = in, .out = b.out});
      });
}

}  // namespace warpstep::ref

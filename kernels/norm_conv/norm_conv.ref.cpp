// Convolutions fused with batch norms, in double.
#include <cmath>
#include <vector>

#include "kernels/conv/conv.ref.h"

namespace warpstep::ref {
namespace {

// max(0, scale x + bias (+ shortcut)), the channels innermost.
struct Normed {
  const double *x, *scale, *bias;
  const double *shortcut = nullptr, *shortcut_scale = nullptr, *shortcut_bias = nullptr;

  std::vector<double> values(std::int64_t count, std::int64_t channels) const {
    std::vector<double> p(idx(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t c = i % channels;
      double sum = scale[c] * x[i] + bias[c];
      if (shortcut_scale)
        sum += shortcut_scale[c] * shortcut[i] + shortcut_bias[c];
      else if (shortcut)
        sum += shortcut[i];
      p[idx(i)] = rectified(sum);
    }
    return p;
  }
};

Normed prologue(Prologue kind, const Buffers& b) {
  Normed normed{as<double>(b.in[0]), as<double>(b.in[2]), as<double>(b.in[3])};
  if (kind >= Prologue::join) normed.shortcut = as<double>(b.in[4]);
  if (kind == Prologue::join_norms) {
    normed.shortcut_scale = as<double>(b.in[5]);
    normed.shortcut_bias = as<double>(b.in[6]);
  }
  return normed;
}

}  // namespace

std::unique_ptr<Kernel> bind(const NormConv& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = operands.out_shape();
  return host_kernel("loops", [op, x, z](const Buffers& b) {
    std::vector<double> made;
    const double* in = as<double>(b.in[0]);
    if (op.prologue != Prologue::none) {
      made = prologue(op.prologue, b).values(x.count(), x[3]);
      in = made.data();
    }
    double *y = as<double>(b.out[0]), *sum = as<double>(b.out[1]), *squares = as<double>(b.out[2]);
    convolve(op.conv, x, z, in, as<double>(b.in[1]), y);
    std::fill_n(sum, op.conv.out, 0.0);
    std::fill_n(squares, op.conv.out, 0.0);
    for (std::int64_t i = 0; i < z.count(); ++i) {
      sum[i % op.conv.out] += y[i];
      squares[i % op.conv.out] += y[i] * y[i];
    }
    if (op.joins()) std::copy(made.begin(), made.end(), as<double>(b.out[3]));
  });
}

std::unique_ptr<Kernel> bind(const NormFinalize& op, const Operands& operands) {
  return host_kernel("loops", [op, channels = operands.in_shape(0).count()](const Buffers& b) {
    const auto n = static_cast<double>(op.rows);
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto in = [&](std::size_t i) -> double& { return as<double>(b.in[i])[c]; };
      const auto out = [&](std::size_t i) -> double& { return as<double>(b.out[i])[c]; };
      const double mean = in(0) / n, variance = std::max(0.0, in(1) / n - mean * mean);
      in(4) += op.norm.momentum * (mean - in(4));
      in(5) += op.norm.momentum * (variance * n / (n - 1) - in(5));
      out(0) = mean;
      out(1) = 1 / std::sqrt(variance + op.norm.epsilon);
      out(2) = in(2) * out(1);
      out(3) = in(3) - mean * out(2);
    }
  });
}

std::unique_ptr<Kernel> bind(const NormApply& op, const Operands& operands) {
  const std::int64_t count = operands.in_shape(0).count(), channels = operands.in_shape(0)[3];
  return host_kernel("loops", [op, count, channels](const Buffers& b) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto of_channel = [&](std::size_t in) { return as<double>(b.in[in])[i % channels]; };
      double y =
          of_channel(1) * (as<double>(b.in[0])[i] - of_channel(3)) * of_channel(4) + of_channel(2);
      if (op.norm.add) y += as<double>(b.in[5])[i];
      as<double>(b.out[0])[i] = op.norm.relu ? rectified(y) : y;
    }
  });
}

std::unique_ptr<Kernel> bind(const NormConvDataGrad& op, const Operands& operands) {
  const Shape x = operands.in_shape(2), z = operands.in_shape(0);
  return host_kernel("loops", [op, x, z](const Buffers& b) {
    const double *images = as<double>(b.in[2]), *gamma = as<double>(b.in[3]),
                 *beta = as<double>(b.in[4]), *mean = as<double>(b.in[5]),
                 *inv_std = as<double>(b.in[6]);
    double *g = as<double>(b.out[0]), *d_gamma = as<double>(b.out[1]),
           *d_beta = as<double>(b.out[2]);
    convolve_data_grad(op.conv, x, z, as<double>(b.in[0]), as<double>(b.in[1]), g);
    const std::int64_t channels = x[3];
    std::fill_n(d_gamma, channels, 0.0);
    std::fill_n(d_beta, channels, 0.0);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t c = i % channels;
      const double h = (images[i] - mean[c]) * inv_std[c];
      if (gamma[c] * h + beta[c] <= 0) g[i] = 0;
      d_gamma[c] += g[i] * h;
      d_beta[c] += g[i];
    }
    const double n = static_cast<double>(x.count()) / static_cast<double>(channels);
    for (std::int64_t c = 0; c < channels; ++c) {
      const double by_g = gamma[c] * inv_std[c], by_x = -by_g * inv_std[c] * d_gamma[c] / n;
      as<double>(b.out[3])[c] = by_g;
      as<double>(b.out[4])[c] = by_x;
      as<double>(b.out[5])[c] = -by_g * d_beta[c] / n - by_x * mean[c];
    }
  });
}

std::unique_ptr<Kernel> bind(const NormGradApply&, const Operands& operands) {
  const std::int64_t count = operands.in_shape(0).count(), channels = operands.in_shape(0)[3];
  return host_kernel("loops", [count, channels](const Buffers& b) {
    const double *g = as<double>(b.in[0]), *x = as<double>(b.in[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto of_channel = [&](std::size_t in) { return as<double>(b.in[in])[i % channels]; };
      as<double>(b.out[0])[i] = of_channel(4) * g[i] + of_channel(5) * x[i] + of_channel(6);
    }
    std::copy_n(as<double>(b.in[2]), channels, as<double>(b.out[1]));
    std::copy_n(as<double>(b.in[3]), channels, as<double>(b.out[2]));
  });
}

std::unique_ptr<Kernel> bind(const NormConvWeightGrad& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = operands.in_shape(3);
  return host_kernel("loops", [op, x, z](const Buffers& b) {
    const Normed normed{as<double>(b.in[0]), as<double>(b.in[1]), as<double>(b.in[2])};
    const std::vector<double> p = normed.values(x.count(), x[3]);
    convolve_weight_grad(op.conv, x, z, p.data(), as<double>(b.in[3]), as<double>(b.out[0]));
  });
}

}  // namespace warpstep::ref

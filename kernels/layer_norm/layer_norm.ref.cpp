// Layer norm and its adjoint in double: the statistics of a row in two passes.
#include <cmath>
#include <vector>

#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const LayerNorm& op, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], channels = operands.in_shape(0)[1];
  return host_kernel("loops", [op, rows, channels](const Buffers& b) {
    const double* gamma = as<double>(b.in[1]);
    const double* beta = op.bias ? as<double>(b.in[2]) : nullptr;
    std::vector<double> s(idx(channels));
    for (std::int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t i = r * channels + c;
        s[idx(c)] = as<double>(b.in[0])[i] + (op.add ? as<double>(b.in.back())[i] : 0);
        if (op.add) as<double>(b.out[3])[i] = s[idx(c)];
        mean += s[idx(c)];
      }
      mean /= static_cast<double>(channels);
      for (const double x : s) variance += (x - mean) * (x - mean) / static_cast<double>(channels);
      const double inv_std = 1 / std::sqrt(variance + op.epsilon);
      as<double>(b.out[1])[r] = mean;
      as<double>(b.out[2])[r] = inv_std;
      for (std::int64_t c = 0; c < channels; ++c)
        as<double>(b.out[0])[r * channels + c] =
            gamma[c] * (s[idx(c)] - mean) * inv_std + (beta ? beta[c] : 0);
    }
  });
}

std::unique_ptr<Kernel> bind(const LayerNormGrad& op, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], channels = operands.in_shape(0)[1];
  return host_kernel("loops", [op, rows, channels](const Buffers& b) {
    const double* gamma = as<double>(b.in[2]);
    double* d_gamma = as<double>(b.out[1]);
    double* d_beta = op.bias ? as<double>(b.out[2]) : nullptr;
    std::fill_n(d_gamma, channels, 0.0);
    if (d_beta) std::fill_n(d_beta, channels, 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double *d_y = as<double>(b.in[0]) + r * channels,
                   *s = as<double>(b.in[1]) + r * channels;
      const double* second = op.sum ? as<double>(b.in[5]) + r * channels : nullptr;
      double* d_s = as<double>(b.out[0]) + r * channels;
      const double mean = as<double>(b.in[3])[r], inv_std = as<double>(b.in[4])[r];
      double mean_g = 0, mean_gh = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        const double h = (s[c] - mean) * inv_std, g = gamma[c] * d_y[c];
        mean_g += g / static_cast<double>(channels);
        mean_gh += g * h / static_cast<double>(channels);
        d_gamma[c] += d_y[c] * h;
        if (d_beta) d_beta[c] += d_y[c];
      }
      for (std::int64_t c = 0; c < channels; ++c) {  // d_s may be d_y
        const double h = (s[c] - mean) * inv_std;
        const double more = second ? second[c] : 0;
        d_s[c] = inv_std * (gamma[c] * d_y[c] - mean_g - h * mean_gh) + more;
      }
    }
    if (op.bias_gradient)
      column_sums(as<double>(b.out[0]), rows * channels, channels, as<double>(b.out.back()));
  });
}

}  // namespace warpstep::ref

#include <algorithm>
#include <limits>

#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0), y = operands.out_shape()](const Buffers& b) {
        const double* in = as<double>(b.in[0]);
        for (std::int64_t o = 0; o < y.count(); ++o) {
          const std::int64_t c = o % y[3], j = o / y[3] % y[2], i = o / y[3] / y[2] % y[1],
                             n = o / y[3] / y[2] / y[1];
          double best = -std::numeric_limits<double>::infinity();
          // Where nothing is above -inf, NaN for one, the first position in the image.
          const std::int64_t h0 = std::max<std::int64_t>(0, op.padding - i * op.stride),
                             w0 = std::max<std::int64_t>(0, op.padding - j * op.stride);
          auto at = static_cast<std::uint8_t>(h0 * op.window + w0);
          for (std::int64_t k = 0; k < op.window * op.window; ++k) {
            const std::int64_t h = i * op.stride - op.padding + k / op.window,
                               w = j * op.stride - op.padding + k % op.window;
            if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
            const double value = in[((n * x[1] + h) * x[2] + w) * x[3] + c];
            if (value > best) {
              best = value;
              at = static_cast<std::uint8_t>(k);
            }
          }
          const bool clamped = op.relu && !(best > 0);
          as<double>(b.out[0])[o] = clamped ? 0 : best;
          as<std::uint8_t>(b.out[1])[o] = clamped ? MaxPool::none : at;
        }
      });
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, x = op.input, y = operands.in_shape(0)](const Buffers& b) {
    double* d_x = as<double>(b.out[0]);
    std::fill_n(d_x, x.count(), 0.0);
    for (std::int64_t o = 0; o < y.count(); ++o) {
      const std::int64_t k = as<std::uint8_t>(b.in[1])[o];
      if (k == MaxPool::none) continue;
      const std::int64_t c = o % y[3], j = o / y[3] % y[2], i = o / y[3] / y[2] % y[1],
                         n = o / y[3] / y[2] / y[1];
      const std::int64_t h = i * op.pool.stride - op.pool.padding + k / op.pool.window;
      const std::int64_t w = j * op.pool.stride - op.pool.padding + k % op.pool.window;
      d_x[((n * x[1] + h) * x[2] + w) * x[3] + c] += as<double>(b.in[0])[o];
    }
    if (op.bias_gradient) column_sums(d_x, x.count(), x[3], as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

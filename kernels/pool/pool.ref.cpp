// Max and average pooling and their adjoints in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/pool/pool.ref.h"

namespace warpstep::ref {

void pool_maxima(const MaxPool& op, const Shape& x, const Shape& y, const double* in, double* out,
                 std::uint8_t* index) {
  for (std::int64_t o = 0; o < y.count(); ++o) {
    const std::int64_t c = o % y[3], j = o / y[3] % y[2], i = o / y[3] / y[2] % y[1],
                       n = o / y[3] / y[2] / y[1];
    double best = -std::numeric_limits<double>::infinity();
    // If no element is above -inf: the first position in the image.
    const std::int64_t h0 = std::max<std::int64_t>(0, op.padding - i * op.stride),
                       w0 = std::max<std::int64_t>(0, op.padding - j * op.stride);
    auto at = static_cast<std::uint8_t>(h0 * op.window + w0);
    for (std::int64_t k = 0; k < op.window * op.window; ++k) {
      const std::int64_t h = i * op.stride - op.padding + k / op.window,
                         w = j * op.stride - op.padding + k % op.window;
      if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
      const double value = in[((n * x[1] + h) * x[2] + w) * x[3] + c];
      if (value > best || std::isnan(value)) {
        best = value;
        at = static_cast<std::uint8_t>(k);
      }
    }
    const bool clamped = op.relu && best <= 0;
    out[o] = clamped ? 0 : best;
    index[o] = clamped ? MaxPool::none : at;
  }
}

void spread_to_maxima(const MaxPool& op, const Shape& x, const Shape& y, const double* d_y,
                      const std::uint8_t* index, double* d_x) {
  std::fill_n(d_x, x.count(), 0.0);
  for (std::int64_t o = 0; o < y.count(); ++o) {
    const std::int64_t k = index[o];
    if (k == MaxPool::none) continue;
    const std::int64_t c = o % y[3], j = o / y[3] % y[2], i = o / y[3] / y[2] % y[1],
                       n = o / y[3] / y[2] / y[1];
    const std::int64_t h = i * op.stride - op.padding + k / op.window;
    const std::int64_t w = j * op.stride - op.padding + k % op.window;
    d_x[((n * x[1] + h) * x[2] + w) * x[3] + c] += d_y[o];
  }
}

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  return host_kernel("loops", [op, x = operands.in_shape(0),
                               y = operands.out_shape()](const Buffers& b) {
    pool_maxima(op, x, y, as<double>(b.in[0]), as<double>(b.out[0]), as<std::uint8_t>(b.out[1]));
  });
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, x = op.input, y = operands.in_shape(0)](const Buffers& b) {
    double* d_x = as<double>(b.out[0]);
    spread_to_maxima(op.pool, x, y, as<double>(b.in[0]), as<std::uint8_t>(b.in[1]), d_x);
    if (op.bias_gradient) column_sums(d_x, x.count(), x[3], as<double>(b.out[1]));
  });
}

namespace {

struct Window {
  std::int64_t height, width, stride, padding;
};

Window window_of(const AvgPool& op, const Shape& x) {
  if (op.window == 0) return {x[1], x[2], 1, 0};
  return {op.window, op.window, op.stride, op.padding};
}

// Calls visit(index of x) for every element of output o's window that is in the image.
template <class Visit>
void for_each_tap(const Window& window, const Shape& x, const Shape& y, std::int64_t o,
                  Visit visit) {
  const std::int64_t c = o % y[3], j = o / y[3] % y[2], i = o / y[3] / y[2] % y[1],
                     n = o / y[3] / y[2] / y[1];
  for (std::int64_t k = 0; k < window.height * window.width; ++k) {
    const std::int64_t h = i * window.stride - window.padding + k / window.width,
                       w = j * window.stride - window.padding + k % window.width;
    if (h >= 0 && h < x[1] && w >= 0 && w < x[2]) visit(((n * x[1] + h) * x[2] + w) * x[3] + c);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0), y = operands.out_shape()](const Buffers& b) {
        const Window window = window_of(op, x);
        const auto taps = static_cast<double>(window.height * window.width);
        for (std::int64_t o = 0; o < y.count(); ++o) {
          double sum = 0;
          for_each_tap(window, x, y, o, [&](std::int64_t i) { sum += as<double>(b.in[0])[i]; });
          as<double>(b.out[0])[o] = sum / taps;
        }
      });
}

std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, y = operands.in_shape(0)](const Buffers& b) {
    const Window window = window_of(op.pool, op.input);
    const auto taps = static_cast<double>(window.height * window.width);
    double* d_x = as<double>(b.out[0]);
    std::fill_n(d_x, op.input.count(), 0.0);
    for (std::int64_t o = 0; o < y.count(); ++o) {
      const double share = as<double>(b.in[0])[o] / taps;
      for_each_tap(window, op.input, y, o, [&](std::int64_t i) { d_x[i] += share; });
    }
  });
}

}  // namespace warpstep::ref

#include <algorithm>

#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

struct Window {
  std::int64_t height, width, stride, padding;
};

Window window_of(const AvgPool& op, const Shape& x) {
  if (op.window == 0) return {x[1], x[2], 1, 0};
  return {op.window, op.window, op.stride, op.padding};
}

// Calls visit(index of x) for every element of the window of output o that lies in the image.
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

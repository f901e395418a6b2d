// GELU and its adjoint in double.
#include <cmath>
#include <numbers>

#include "kernels/ref/ref.h"

namespace warpstep::ref {
GeluAt gelu_at(double x, bool tanh) {
  if (tanh) {
    const double scale = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return {0.5 * x * (1 + t),
            0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x)};
  }
  const double share = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return {x * share, share + x * density};
}

std::unique_ptr<Kernel> bind(const Gelu& op, const Operands& operands) {
  return host_kernel("loops", [op, count = operands.out_shape().count()](const Buffers& b) {
    for (std::int64_t i = 0; i < count; ++i)
      as<double>(b.out[0])[i] = gelu_at(as<double>(b.in[0])[i], op.tanh).y;
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, x = operands.out_shape()](const Buffers& b) {
    double* d_x = as<double>(b.out[0]);
    for (std::int64_t i = 0; i < x.count(); ++i)
      d_x[i] = as<double>(b.in[0])[i] * gelu_at(as<double>(b.in[1])[i], op.tanh).slope;
    if (op.bias_gradient) column_sums(d_x, x.count(), x.back(), as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

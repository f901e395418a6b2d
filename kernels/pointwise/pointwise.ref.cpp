// Elementwise ops in double.
#include <cstring>

#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

// out[i] = f(a[i], b[i]) for ops of one or two inputs of one shape.
template <class F>
std::unique_ptr<Kernel> each(const Operands& operands, F f) {
  return host_kernel("loops", [f, count = operands.out_shape().count(),
                               binary = operands.node.in.size() > 1](const Buffers& b) {
    const double *x = as<double>(b.in[0]), *y = binary ? as<double>(b.in[1]) : x;
    double* out = as<double>(b.out[0]);
    for (std::int64_t i = 0; i < count; ++i) out[i] = f(x[i], y[i]);
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const Normalize& op, const Operands& operands) {
  const bool bytes = operands.in(0).type.dtype == DType::u8;
  return host_kernel("loops", [op, bytes, count = operands.out_shape().count(),
                               channels = operands.out_shape()[3]](const Buffers& b) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t c = idx(i % channels);
      const double x = bytes ? as<std::uint8_t>(b.in[0])[i] : as<double>(b.in[0])[i];
      as<double>(b.out[0])[i] =
          x * static_cast<double>(op.scale[c]) + static_cast<double>(op.shift[c]);
    }
  });
}

std::unique_ptr<Kernel> bind(const Relu&, const Operands& operands) {
  return each(operands, [](double x, double) { return rectified(x); });
}

std::unique_ptr<Kernel> bind(const ReluGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, x = operands.out_shape()](const Buffers& b) {
    const double *d_y = as<double>(b.in[0]), *y = as<double>(b.in[1]);
    double* d_x = as<double>(b.out[0]);
    for (std::int64_t i = 0; i < x.count(); ++i) d_x[i] = y[i] <= 0 ? 0 : d_y[i];
    if (op.bias_gradient) column_sums(d_x, x.count(), x.back(), as<double>(b.out[1]));
  });
}

std::unique_ptr<Kernel> bind(const Add&, const Operands& operands) {
  return each(operands, [](double a, double b) { return a + b; });
}

std::unique_ptr<Kernel> bind(const Upload&, const Operands& operands) {
  return host_kernel("copy", [bytes = operands.out().layout.bytes](const Buffers& b) {
    std::memcpy(b.out[0], b.in[0], bytes);
  });
}

std::unique_ptr<Kernel> bind(const Reorder&, const Operands& operands) {
  return host_kernel("copy", [bytes = operands.out().layout.bytes](const Buffers& b) {
    std::memcpy(b.out[0], b.in[0], bytes);
  });
}

}  // namespace warpstep::ref

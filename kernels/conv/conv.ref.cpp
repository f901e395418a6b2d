// Convolutions and their adjoints in double, from the loops of conv.ref.h; a pool after them from
// those of pool.ref.h.
#include "kernels/conv/conv.ref.h"

#include <vector>

#include "kernels/pool/pool.ref.h"

namespace warpstep::ref {
namespace {

// The gradient of the convolution's own output: the operand, or what the pool makes of it.
class OutputGradient {
 public:
  OutputGradient(const Conv& op, const Shape& z, const Shape& y, const void* d_y, const void* index)
      : d_z_(static_cast<const double*>(d_y)) {
    if (!op.pool) return;
    own_.resize(idx(z.count()));
    spread_to_maxima(*op.pool, z, y, d_z_, static_cast<const std::uint8_t*>(index), own_.data());
    d_z_ = own_.data();
  }
  const double* data() const { return d_z_; }

 private:
  std::vector<double> own_;
  const double* d_z_;
};

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = convolved(op, x), y = operands.out_shape();
  return host_kernel("loops", [=](const Buffers& b) {
    std::vector<double> own(op.pool ? idx(z.count()) : 0);
    double* out = op.pool ? own.data() : as<double>(b.out[0]);
    convolve(op, x, z, as<double>(b.in[0]), as<double>(b.in[1]), out);
    for (std::int64_t i = 0; i < z.count(); ++i) {
      if (op.bias) out[i] += as<double>(b.in[2])[i % op.out];
      if (op.relu) out[i] = rectified(out[i]);
    }
    if (op.pool) pool_maxima(*op.pool, z, y, out, as<double>(b.out[0]), as<std::uint8_t>(b.out[1]));
  });
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  const Shape z = convolved(op.conv, op.input), y = operands.in_shape(0);
  return host_kernel("loops", [=](const Buffers& b) {
    const OutputGradient d_z(op.conv, z, y, b.in[0], op.conv.pool ? b.in[2] : nullptr);
    double* d_x = as<double>(b.out[0]);
    convolve_data_grad(op.conv, op.input, z, d_z.data(), as<double>(b.in[1]), d_x);
    if (!op.relu) return;
    for (std::int64_t i = 0; i < op.input.count(); ++i)
      if (as<double>(b.in.back())[i] <= 0) d_x[i] = 0;
  });
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = convolved(op.conv, x), y = operands.in_shape(1);
  return host_kernel("loops", [=](const Buffers& b) {
    const OutputGradient d_z(op.conv, z, y, b.in[1], op.conv.pool ? b.in[2] : nullptr);
    convolve_weight_grad(op.conv, x, z, as<double>(b.in[0]), d_z.data(), as<double>(b.out[0]));
    if (op.conv.bias) column_sums(d_z.data(), z.count(), op.conv.out, as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

// Convolutions and their adjoints in double, from the loops of conv.ref.h.
#include "kernels/conv/conv.ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  return host_kernel("loops",
                     [op, x = operands.in_shape(0), z = operands.out_shape()](const Buffers& b) {
                       double* out = as<double>(b.out[0]);
                       convolve(op, x, z, as<double>(b.in[0]), as<double>(b.in[1]), out);
                       for (std::int64_t i = 0; i < z.count(); ++i) {
                         if (op.bias) out[i] += as<double>(b.in[2])[i % op.out];
                         if (op.relu) out[i] = std::max(0.0, out[i]);
                       }
                     });
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, z = operands.in_shape(0)](const Buffers& b) {
    convolve_data_grad(op.conv, op.input, z, as<double>(b.in[0]), as<double>(b.in[1]),
                       as<double>(b.out[0]));
  });
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = operands.in_shape(1);
  return host_kernel("loops", [op, x, z](const Buffers& b) {
    const double* d_z = as<double>(b.in[1]);
    convolve_weight_grad(op.conv, x, z, as<double>(b.in[0]), d_z, as<double>(b.out[0]));
    if (op.conv.bias) column_sums(d_z, z.count(), op.conv.out, as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

#include "kernels/ref/ref.h"

namespace warpstep::ref {

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], depth = operands.in_shape(0)[1];
  return host_kernel("loops", [op, rows, depth](const Buffers& b) {
    const double *x = as<double>(b.in[0]), *weight = as<double>(b.in[1]);
    double* y = as<double>(b.out[0]);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t o = 0; o < op.out; ++o) {
        double sum = op.bias ? as<double>(b.in[2])[o] : 0;
        for (std::int64_t k = 0; k < depth; ++k) sum += x[n * depth + k] * weight[o * depth + k];
        y[n * op.out + o] = op.relu ? std::max(0.0, sum) : sum;
      }
  });
}

std::unique_ptr<Kernel> bind(const LinearDataGrad&, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], outs = operands.in_shape(0)[1],
                     depth = operands.in_shape(1)[1];
  return host_kernel("loops", [=](const Buffers& b) {
    const double *d_z = as<double>(b.in[0]), *weight = as<double>(b.in[1]);
    double* d_x = as<double>(b.out[0]);
    std::fill_n(d_x, rows * depth, 0.0);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t o = 0; o < outs; ++o)
        for (std::int64_t k = 0; k < depth; ++k)
          d_x[n * depth + k] += d_z[n * outs + o] * weight[o * depth + k];
  });
}

std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], depth = operands.in_shape(0)[1],
                     outs = operands.in_shape(1)[1];
  return host_kernel("loops", [=](const Buffers& b) {
    const double *x = as<double>(b.in[0]), *d_z = as<double>(b.in[1]);
    double* d_weight = as<double>(b.out[0]);
    std::fill_n(d_weight, outs * depth, 0.0);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t o = 0; o < outs; ++o)
        for (std::int64_t k = 0; k < depth; ++k)
          d_weight[o * depth + k] += d_z[n * outs + o] * x[n * depth + k];
    if (op.bias) column_sums(d_z, rows * outs, outs, as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

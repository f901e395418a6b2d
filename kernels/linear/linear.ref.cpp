// Linear layers and their adjoints in double, with the mask of a relu as bits, and with GELU.
#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

// Bytes per row of Linear's mask.
std::int64_t mask_pitch(std::int64_t columns) {
  return 16 * ((columns + 127) / 128);
}

// Bit c % 8 of a row's byte c / 8: whether y[c] is above 0 or NaN.
void write_mask(const double* y, std::int64_t rows, std::int64_t columns, std::uint8_t* mask) {
  const std::int64_t pitch = mask_pitch(columns);
  std::fill_n(mask, rows * pitch, std::uint8_t{0});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      if (!(y[r * columns + c] <= 0))
        mask[r * pitch + c / 8] = static_cast<std::uint8_t>(mask[r * pitch + c / 8] | 1 << c % 8);
}

void apply_mask(const std::uint8_t* mask, std::int64_t rows, std::int64_t columns, double* d_x) {
  const std::int64_t pitch = mask_pitch(columns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      if ((mask[r * pitch + c / 8] >> c % 8 & 1) == 0) d_x[r * columns + c] = 0;
}

}  // namespace

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  const std::int64_t rows = operands.in_shape(0)[0], depth = operands.in_shape(0)[1];
  return host_kernel("loops", [op, rows, depth](const Buffers& b) {
    const double *x = as<double>(b.in[0]), *weight = as<double>(b.in[1]);
    double* y = as<double>(b.out[0]);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t o = 0; o < op.out; ++o) {
        double sum = op.bias ? as<double>(b.in[2])[o] : 0;
        for (std::int64_t k = 0; k < depth; ++k) sum += x[n * depth + k] * weight[o * depth + k];
        if (op.keep) as<double>(b.out[1])[n * op.out + o] = sum;
        y[n * op.out + o] = op.relu ? rectified(sum) : op.gelu ? gelu_at(sum, true).y : sum;
      }
    if (op.mask) write_mask(y, rows, op.out, as<std::uint8_t>(b.out[1]));
  });
}

std::unique_ptr<Kernel> bind(const LinearDataGrad& op, const Operands& operands) {
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
    if (!op.relu && !op.gelu) return;
    if (op.relu) apply_mask(as<std::uint8_t>(b.in[2]), rows, depth, d_x);
    if (op.gelu)
      for (std::int64_t i = 0; i < rows * depth; ++i)
        d_x[i] *= gelu_at(as<double>(b.in[2])[i], true).slope;
    column_sums(d_x, rows * depth, depth, as<double>(b.out[1]));
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

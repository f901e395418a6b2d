#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

// Calls visit(x index, weight index, z index) for every multiply-add of the convolution.
template <class Visit>
void for_each_tap(const Conv& op, const Shape& x, const Shape& z, Visit visit) {
  const std::int64_t in_group = x[3] / op.groups, out_group = op.out / op.groups;
  for (std::int64_t n = 0; n < z[0]; ++n)
    for (std::int64_t i = 0; i < z[1]; ++i)
      for (std::int64_t j = 0; j < z[2]; ++j)
        for (std::int64_t kh = 0; kh < op.kernel; ++kh)
          for (std::int64_t kw = 0; kw < op.kernel; ++kw) {
            const std::int64_t h = i * op.stride - op.padding + kh * op.dilation;
            const std::int64_t w = j * op.stride - op.padding + kw * op.dilation;
            if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
            for (std::int64_t o = 0; o < op.out; ++o) {
              const std::int64_t x0 = ((n * x[1] + h) * x[2] + w) * x[3] + o / out_group * in_group;
              const std::int64_t w0 = ((o * op.kernel + kh) * op.kernel + kw) * in_group;
              const std::int64_t zi = ((n * z[1] + i) * z[2] + j) * op.out + o;
              for (std::int64_t c = 0; c < in_group; ++c) visit(x0 + c, w0 + c, zi);
            }
          }
}

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, x = operands.in_shape(0), z = operands.out_shape()](const Buffers& b) {
        const double *in = as<double>(b.in[0]), *weight = as<double>(b.in[1]);
        double* out = as<double>(b.out[0]);
        for (std::int64_t i = 0; i < z.count(); ++i)
          out[i] = op.bias ? as<double>(b.in[2])[i % op.out] : 0;
        for_each_tap(op, x, z, [&](auto xi, auto wi, auto zi) { out[zi] += in[xi] * weight[wi]; });
        if (op.relu)
          for (std::int64_t i = 0; i < z.count(); ++i) out[i] = std::max(0.0, out[i]);
      });
}

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  return host_kernel("loops", [op, z = operands.in_shape(0)](const Buffers& b) {
    const double *d_z = as<double>(b.in[0]), *weight = as<double>(b.in[1]);
    double* d_x = as<double>(b.out[0]);
    std::fill_n(d_x, op.input.count(), 0.0);
    for_each_tap(op.conv, op.input, z,
                 [&](auto xi, auto wi, auto zi) { d_x[xi] += d_z[zi] * weight[wi]; });
  });
}

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const Shape x = operands.in_shape(0), z = operands.in_shape(1);
  return host_kernel("loops", [op, x, z, weights = operands.out_shape().count()](const Buffers& b) {
    const double *in = as<double>(b.in[0]), *d_z = as<double>(b.in[1]);
    double* d_weight = as<double>(b.out[0]);
    std::fill_n(d_weight, weights, 0.0);
    for_each_tap(op.conv, x, z,
                 [&](auto xi, auto wi, auto zi) { d_weight[wi] += in[xi] * d_z[zi]; });
    if (op.conv.bias) column_sums(d_z, z.count(), op.conv.out, as<double>(b.out[1]));
  });
}

}  // namespace warpstep::ref

// Convolutions as plain loops in double, for all reference kernels that contain one.
#pragma once

#include <algorithm>

#include "kernels/ref/ref.h"

namespace warpstep::ref {

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

// out = conv(in, weight), of shape z, without bias and relu.
inline void convolve(const Conv& op, const Shape& x, const Shape& z, const double* in,
                     const double* weight, double* out) {
  std::fill_n(out, z.count(), 0.0);
  for_each_tap(op, x, z, [&](auto xi, auto wi, auto zi) { out[zi] += in[xi] * weight[wi]; });
}

inline void convolve_data_grad(const Conv& op, const Shape& x, const Shape& z, const double* d_z,
                               const double* weight, double* d_x) {
  std::fill_n(d_x, x.count(), 0.0);
  for_each_tap(op, x, z, [&](auto xi, auto wi, auto zi) { d_x[xi] += d_z[zi] * weight[wi]; });
}

inline void convolve_weight_grad(const Conv& op, const Shape& x, const Shape& z, const double* in,
                                 const double* d_z, double* d_weight) {
  std::fill_n(d_weight, weight_shape(op, x[3]).count(), 0.0);
  for_each_tap(op, x, z, [&](auto xi, auto wi, auto zi) { d_weight[wi] += in[xi] * d_z[zi]; });
}

}  // namespace warpstep::ref

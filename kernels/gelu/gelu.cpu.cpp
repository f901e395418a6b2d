// Vector loops: some 40 to 60 instructions per vector, an exponential and one division among them.
// Every version of a loop gives the same bits.
#include <bit>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/floats.h"

namespace warpstep::cpu {
namespace {

// Both units are x or 0, and their slopes 1 or 0, to float32's last digit where |x| is larger:
// there slopes are those of the border, so that no power of a large x overflows. NaN stays NaN.
constexpr float tanh_border = 9.9F, erf_border = 13.1F;
WARPSTEP_LOOP float within(float x, float border) {
  return x < -border ? -border : x > border ? border : x;
}
WARPSTEP_LOOP float magnitude_within(float x, float border) {
  return std::abs(x) > border ? border : std::abs(x);
}

// (1 + tanh(u)) / 2 is the logistic function of 2 u = x (k1 + k3 x^2).
constexpr float k1 = 1.59576912F;    // 2 sqrt(2 / pi)
constexpr float k3 = 0.0713548163F;  // 0.044715 k1

// exp(scale (x + low)) for a power of two as scale, |scale x| <= 86 and a low that changes it by
// less than 0.1. x is split into n ln(2) / scale + r, and exp(scale r) is a polynomial with a
// relative error below 3e-9 for |scale r| <= 0.347 and 7e-8 for 0.45 (weighted least squares,
// reweighted until the largest error is least). exp_within_range() has no low, clamps x, which here
// has borders already, and has a longer series.
template <class Low>
WARPSTEP_LOOP float exp_of(float scale, float x, Low with_low) {
  constexpr float round = 12582912;  // 1.5 * 2^23: adding it leaves n in the lowest bits
  const float shifted = x * (scale * 1.44269504F) + round, n = shifted - round;
  const float r =  // ln 2 in two parts, the first product and its difference without rounding
      (x - n * (0.693359375F / scale)) + with_low(n * (2.12194440e-4F / scale));
  float p = 0.001384346597F * (scale * scale * scale * scale * scale * scale);
  p = p * r + 0.008374316657F * (scale * scale * scale * scale * scale);
  p = p * r + 0.04166801282F * (scale * scale * scale * scale);
  p = p * r + 0.1666642941F * (scale * scale * scale);
  p = p * r + 0.4999999414F * (scale * scale);
  p = p * r + scale;
  p = p * r + 1;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (std::bit_cast<std::uint32_t>(shifted) << 23));  // p 2^n
}

// exp(-x).
WARPSTEP_LOOP float exp_of_minus(float x) {
  return exp_of(-1, x, [](float rest) { return rest; });
}

// exp(-x^2 / 2) for 0 <= x <= erf_border: x^2 is split into a part without rounding and a small
// one.
WARPSTEP_LOOP float normal_density(float x) {
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xfffff000U);
  const float low = (x - high) * (x + high);
  return exp_of(-0.5F, high * high, [=](float rest) { return low + rest; });
}

// P(X > x) / exp(-x^2 / 2) of a standard normal X for 0 <= x <= erf_border: a rational function
// with a relative error below 4e-8 (fitted as the exponential's polynomial), whose terms are all
// positive, so that no digits are lost. The unit's negative tail has a relative error below 6e-7.
WARPSTEP_LOOP float normal_tail_ratio(float x) {
  float p = 0.004003050509F;
  p = p * x + 0.03986785907F;
  p = p * x + 0.1809601521F;
  p = p * x + 0.4352156125F;
  p = p * x + 0.5F;
  float q = 0.01003401179F;
  q = q * x + 0.09994146249F;
  q = q * x + 0.463465621F;
  q = q * x + 1.193039963F;
  q = q * x + 1.668316134F;
  q = q * x + 1;
  return p / q;
}

template <class T>
WARPSTEP_LOOP void gelu_tanh_loop(const T* x, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float in = as_float(x[i]), c = within(in, tanh_border),
                s = 1 / (1 + exp_of_minus(c * (k1 + k3 * (c * c))));
    y[i] = in < -tanh_border ? 0 : in * s;
  }
}
template <class T>
const auto gelu_tanh = vectorized<gelu_tanh_loop<T>>();

template <class T>
WARPSTEP_LOOP void gelu_erf_loop(const T* x, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float in = as_float(x[i]), c = magnitude_within(in, erf_border);
    const float less = c * normal_density(c) * normal_tail_ratio(c);  // |x| P(X > |x|)
    y[i] = in < -erf_border ? 0 : (in < 0 ? 0 : in) - less;
  }
}
template <class T>
const auto gelu_erf = vectorized<gelu_erf_loop<T>>();

// Of the logistic function s, 1 - s is s e: the subtraction would lose its digits.
template <class T>
WARPSTEP_LOOP void gelu_tanh_grad_loop(const T* d_y, const T* x, float* d_x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float c = within(as_float(x[i]), tanh_border), square = c * c;
    const float e = exp_of_minus(c * (k1 + k3 * square)), s = 1 / (1 + e);
    d_x[i] = as_float(d_y[i]) * (s + c * s * (e * s) * (k1 + 3 * k3 * square));
  }
}
template <class T>
const auto gelu_tanh_grad = vectorized<gelu_tanh_grad_loop<T>>();

// The slope at -c is that of the tail, and the slope at c is 1 minus it.
template <class T>
WARPSTEP_LOOP void gelu_erf_grad_loop(const T* d_y, const T* x, float* d_x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float in = as_float(x[i]), c = magnitude_within(in, erf_border);
    const float slope = normal_density(c) * (normal_tail_ratio(c) - c * 0.398942280F);
    d_x[i] = as_float(d_y[i]) * (in < 0 ? slope : 1 - slope);
  }
}
template <class T>
const auto gelu_erf_grad = vectorized<gelu_erf_grad_loop<T>>();

}  // namespace

std::unique_ptr<Kernel> bind(const Gelu& op, const Operands& operands) {
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel("vector loops", [loop = op.tanh ? gelu_tanh<T> : gelu_erf<T>,
                                        count = operands.out_shape().count()](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        write_floats(as<T>(b.out[0]), begin, end, [&](std::int64_t i, std::int64_t last, float* y) {
          loop(as<T>(b.in[0]) + i, y, last - i);
        });
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel("vector loops", [loop = op.tanh ? gelu_tanh_grad<T> : gelu_erf_grad<T>,
                                        count = operands.out_shape().count()](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        write_floats(as<T>(b.out[0]), begin, end,
                     [&](std::int64_t i, std::int64_t last, float* d_x) {
                       loop(as<T>(b.in[0]) + i, as<T>(b.in[1]) + i, d_x, last - i);
                     });
      });
    });
  });
}

}  // namespace warpstep::cpu

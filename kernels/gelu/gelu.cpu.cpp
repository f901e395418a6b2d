// Vector loops: some 30 to 60 instructions per element, an exponential among them. Every version
// of a loop gives the same bits.
#include <bit>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// Both units are x or 0, and their slopes 1 or 0, to float32's last digit where |x| is larger:
// there slopes are those of the border, so that no power of a large x overflows.
WARPSTEP_LOOP float within(float x, float border) {
  return x < -border ? -border : x > border ? border : x;
}
constexpr float tanh_border = 9.9F, erf_border = 13.1F;

// (1 + tanh(u)) / 2 is the logistic function of 2 u = x (k1 + k3 x^2).
constexpr float k1 = 1.59576912F;    // 2 sqrt(2 / pi)
constexpr float k3 = 0.0713548163F;  // 0.044715 k1

// exp(-x^2 / 2) within 3 units in the last place for |x| <= erf_border: x^2 / 2 is split into a
// part without rounding and a small one.
WARPSTEP_LOOP float normal_density(float x) {
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xfffff000U);
  const float low = -0.5F * (x - high) * (x + high);
  const float density = exp_within_range(-0.5F * high * high);
  return density + density * low * (1 + low * (0.5F + low * (1.0F / 6 + low * (1.0F / 24))));
}

// P(X <= x) of a standard normal X, with a relative error below 7e-7 for x >= -erf_border: erfc(z)
// = t exp(p(t) - z^2) with t = 1 / (1 + z / 2), p fitted by Chebyshev (Press et al., Numerical
// Recipes, 6.2.2).
WARPSTEP_LOOP float normal_share(float x, float density) {
  const float z = (x < 0 ? -x : x) * 0.707106781F;
  const float t = 1 / (1 + 0.5F * z);
  float p = 0.17087277F;
  p = p * t - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  const float tail = 0.5F * t * exp_within_range(p) * density;
  return x < 0 ? tail : 1 - tail;
}

template <class T>
WARPSTEP_LOOP void gelu_tanh_loop(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float in = as_float(x[i]), c = within(in, tanh_border),
                s = 1 / (1 + exp_within_range(-c * (k1 + k3 * c * c)));
    y[i] = rounded_to<T>(in < -tanh_border ? 0 : in * s);
  }
}
template <class T>
const auto gelu_tanh = vectorized<gelu_tanh_loop<T>>();

template <class T>
WARPSTEP_LOOP void gelu_erf_loop(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float in = as_float(x[i]), c = within(in, erf_border),
                share = normal_share(c, normal_density(c));
    y[i] = rounded_to<T>(in < -erf_border ? 0 : in * share);
  }
}
template <class T>
const auto gelu_erf = vectorized<gelu_erf_loop<T>>();

// Of the logistic function s, 1 - s is s e: the subtraction would lose its digits.
template <class T>
WARPSTEP_LOOP void gelu_tanh_grad_loop(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float c = within(as_float(x[i]), tanh_border), square = c * c;
    const float e = exp_within_range(-c * (k1 + k3 * square)), s = 1 / (1 + e);
    d_x[i] = rounded_to<T>(as_float(d_y[i]) * (s + c * s * (e * s) * (k1 + 3 * k3 * square)));
  }
}
template <class T>
const auto gelu_tanh_grad = vectorized<gelu_tanh_grad_loop<T>>();

template <class T>
WARPSTEP_LOOP void gelu_erf_grad_loop(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float c = within(as_float(x[i]), erf_border), density = normal_density(c);
    d_x[i] =
        rounded_to<T>(as_float(d_y[i]) * (normal_share(c, density) + c * density * 0.398942280F));
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
        loop(as<T>(b.in[0]) + begin, as<T>(b.out[0]) + begin, end - begin);
      });
    });
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel("vector loops", [loop = op.tanh ? gelu_tanh_grad<T> : gelu_erf_grad<T>,
                                        count = operands.out_shape().count()](const Buffers& b) {
      for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
        loop(as<T>(b.in[0]) + begin, as<T>(b.in[1]) + begin, as<T>(b.out[0]) + begin, end - begin);
      });
    });
  });
}

}  // namespace warpstep::cpu

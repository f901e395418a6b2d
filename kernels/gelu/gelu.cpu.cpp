// Vector loops: some 30 instructions per element, an exponential of our own among them, because the
// library's has no vector form without -ffast-math. Every version of a loop gives the same bits.
#include <algorithm>
#include <bit>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// exp(x) within 2 units in the last place for |x| <= 87, beyond that of 87: x is split into n ln 2
// + r with |r| <= ln(2) / 2, and exp(r) is its Taylor series to r^7 (error r^8 / 8!: 5e-9).
WARPSTEP_LOOP float exp_within_range(float x) {
  x = std::min(std::max(x, -87.0F), 87.0F);
  constexpr float round = 12582912;  // 1.5 * 2^23: adding it rounds to a whole number
  const float n = (x * 1.44269504F + round) - round;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

constexpr float tanh_scale = 0.797884561F;  // sqrt(2 / pi)
constexpr float tanh_cubic = 0.044715F;

// (1 + tanh(u)) / 2 is the logistic function of 2 u.
WARPSTEP_LOOP float tanh_share(float x) {
  return 1 / (1 + exp_within_range(-2 * tanh_scale * (x + tanh_cubic * x * x * x)));
}

// P(X <= x) of a standard normal X, with an absolute error below 1e-7: Abramowitz and Stegun,
// Handbook of Mathematical Functions, 7.1.26; `density` is exp(-x^2 / 2).
WARPSTEP_LOOP float normal_share(float x, float density) {
  const float z = (x < 0 ? -x : x) * 0.707106781F;
  const float t = 1 / (1 + 0.3275911F * z);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float tail = 0.5F * p * t * density;
  return x < 0 ? tail : 1 - tail;
}

WARPSTEP_LOOP void gelu_tanh_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * tanh_share(x[i]);
}
const auto gelu_tanh = vectorized<gelu_tanh_loop>();

WARPSTEP_LOOP void gelu_erf_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = x[i] * normal_share(x[i], exp_within_range(-0.5F * x[i] * x[i]));
}
const auto gelu_erf = vectorized<gelu_erf_loop>();

WARPSTEP_LOOP void gelu_tanh_grad_loop(const float* d_y, const float* x, float* d_x,
                                       std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = tanh_share(x[i]);
    const float slope_of_u = 2 * tanh_scale * (1 + 3 * tanh_cubic * x[i] * x[i]);
    d_x[i] = d_y[i] * (share + x[i] * share * (1 - share) * slope_of_u);
  }
}
const auto gelu_tanh_grad = vectorized<gelu_tanh_grad_loop>();

WARPSTEP_LOOP void gelu_erf_grad_loop(const float* d_y, const float* x, float* d_x,
                                      std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float density = exp_within_range(-0.5F * x[i] * x[i]);
    d_x[i] = d_y[i] * (normal_share(x[i], density) + x[i] * density * 0.398942280F);
  }
}
const auto gelu_erf_grad = vectorized<gelu_erf_grad_loop>();

std::int64_t gelu_count(const Operands& operands) {  // as stored: 0 stays 0
  return static_cast<std::int64_t>(operands.out().layout.bytes / sizeof(float));
}

}  // namespace

std::unique_ptr<Kernel> bind(const Gelu& op, const Operands& operands) {
  return host_kernel("vector loops", [loop = op.tanh ? gelu_tanh : gelu_erf,
                                      count = gelu_count(operands)](const Buffers& b) {
    for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      loop(as<float>(b.in[0]) + begin, as<float>(b.out[0]) + begin, end - begin);
    });
  });
}

std::unique_ptr<Kernel> bind(const GeluGrad& op, const Operands& operands) {
  return host_kernel("vector loops", [loop = op.tanh ? gelu_tanh_grad : gelu_erf_grad,
                                      count = gelu_count(operands)](const Buffers& b) {
    for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      loop(as<float>(b.in[0]) + begin, as<float>(b.in[1]) + begin, as<float>(b.out[0]) + begin,
           end - begin);
    });
  });
}

}  // namespace warpstep::cpu

// What this architecture has: its instruction sets, and loops that measure their arithmetic peak.
#include <arm_neon.h>

#include "engine/core/cpu_isa.h"
#include "engine/core/cpu_peak.h"

namespace warpstep {
namespace {

constexpr CpuIsaLimit limits_of_aarch64[] = {{"neon", CpuIsa::base, Bf16Isa::none}};

// Independent sums per thread: four units of four cycles' latency need sixteen.
constexpr int chains = 24;

// The sums stay at 1, which the compiler does not know. FMLA replaces its addend: with a constant
// for it each sum would need two moves, too.
float multiply_add_neon(float one, std::int64_t rounds) {
  const float32x4_t half = vdupq_n_f32(one / 2), zero = vdupq_n_f32(one - 1);
  float32x4_t sums[chains];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(one);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (float32x4_t& sum : sums) sum = vfmaq_f32(sum, half, zero);
  }
  for (const float32x4_t& sum : sums) sums[0] = vaddq_f32(sums[0], sum);
  return vgetq_lane_f32(sums[0], 0);
}

}  // namespace

CpuArchitecture cpu_architecture() {
  return {"NEON", limits_of_aarch64};
}

CpuIsa best_cpu_isa() {
  return CpuIsa::base;
}

Bf16Isa best_bf16_isa() {
  return Bf16Isa::none;
}

MultiplyAdds multiply_adds(bool) {
  return {multiply_add_neon, 2.0 * chains * 4};
}

}  // namespace warpstep

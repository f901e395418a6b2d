// What this architecture has: its instruction sets, and loops that measure their arithmetic peak.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/core/cpu_isa.h"
#include "engine/core/cpu_peak.h"

namespace warpstep {
namespace {

constexpr CpuIsaLimit limits_of_x86_64[] = {{"amx", CpuIsa::avx512, Bf16Isa::amx},
                                            {"avx512-bf16", CpuIsa::avx512, Bf16Isa::avx512_bf16},
                                            {"avx512", CpuIsa::avx512, Bf16Isa::none},
                                            {"avx2", CpuIsa::avx2, Bf16Isa::none},
                                            {"sse41", CpuIsa::base, Bf16Isa::none}};

// Tiles hold 8 KiB of state per thread, which the kernel saves only for processes that have asked.
bool may_use_tiles() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

// Independent sums per thread. Two units of four cycles' latency need eight; twelve also hide a
// product followed by an addition, and fit into sixteen registers.
constexpr int chains = 12;

// The sums stay at 1, which the compiler does not know.
__attribute__((target("avx512f"))) float multiply_add_avx512(float one, std::int64_t rounds) {
  const __m512 half = _mm512_set1_ps(one / 2);
  __m512 sums[chains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(one);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, half, half);
  }
  for (const __m512& sum : sums) sums[0] = _mm512_add_ps(sums[0], sum);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx2,fma"))) float multiply_add_avx2(float one, std::int64_t rounds) {
  const __m256 half = _mm256_set1_ps(one / 2);
  __m256 sums[chains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(one);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, half, half);
  }
  for (const __m256& sum : sums) sums[0] = _mm256_add_ps(sums[0], sum);
  return _mm256_cvtss_f32(sums[0]);
}

float multiply_add_sse41(float one, std::int64_t rounds) {
  const __m128 half = _mm_set1_ps(one / 2);
  __m128 sums[chains];
  for (__m128& sum : sums) sum = _mm_set1_ps(one);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (__m128& sum : sums) sum = _mm_add_ps(_mm_mul_ps(sum, half), half);
  }
  for (const __m128& sum : sums) sums[0] = _mm_add_ps(sums[0], sum);
  return _mm_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512bf16"))) float multiply_add_avx512_bf16(float one,
                                                                             std::int64_t rounds) {
  const auto pairs = (__m512bh)_mm512_set1_epi32(one > 0 ? 0x3F80 : 0);  // pairs of 1 and 0
  __m512 sums[chains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(one);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, pairs, pairs);
  }
  for (const __m512& sum : sums) sums[0] = _mm512_add_ps(sums[0], sum);
  return _mm512_cvtss_f32(sums[0]);
}

// Six tiles of sums: an instruction takes 16 cycles, and 52 until its result is there.
constexpr int tile_chains = 6;
__attribute__((target("amx-tile,amx-bf16"))) float multiply_add_amx(float one,
                                                                    std::int64_t rounds) {
  alignas(64) unsigned char config[64] = {1};
  alignas(64) unsigned char sums[1024] = {};
  for (int tile = 0; tile < 8; ++tile) {
    config[16 + 2 * tile] = 64;
    config[48 + tile] = 16;
  }
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  return one + static_cast<float>(sums[0]);
}

}  // namespace

CpuArchitecture cpu_architecture() {
  return {"SSE4.1", limits_of_x86_64};
}

CpuIsa best_cpu_isa() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return CpuIsa::avx512;
  return avx2 ? CpuIsa::avx2 : CpuIsa::base;
}

Bf16Isa best_bf16_isa() {
  static const Bf16Isa best = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (best_cpu_isa() < CpuIsa::avx512 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0)
      return Bf16Isa::none;
    if ((a & 1U << 5) == 0) return Bf16Isa::none;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;
    const bool has_amx = (d & amx_bf16) != 0 && (d & amx_tile) != 0;
    return has_amx && may_use_tiles() ? Bf16Isa::amx : Bf16Isa::avx512_bf16;
  }();
  return best;
}

MultiplyAdds multiply_adds(bool bf16) {
  constexpr double per_lane = 2.0 * chains, of_tiles = 2.0 * 16 * 16 * 32 * tile_chains;
  if (bf16)
    return bf16_isa() == Bf16Isa::amx ? MultiplyAdds{multiply_add_amx, of_tiles}
                                      : MultiplyAdds{multiply_add_avx512_bf16, per_lane * 32};
  switch (cpu_isa()) {
    case CpuIsa::avx512: return {multiply_add_avx512, per_lane * 16};
    case CpuIsa::avx2: return {multiply_add_avx2, per_lane * 8};
    case CpuIsa::base: break;
  }
  return {multiply_add_sse41, per_lane * 4};
}

}  // namespace warpstep

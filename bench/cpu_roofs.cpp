#include "bench/cpu_roofs.h"

#include <immintrin.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/cpu/team.h"

namespace warpstep::bench {
namespace {

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

struct MultiplyAdd {
  float (*run)(float, std::int64_t rounds);
  double flops;  // per round
};
MultiplyAdd multiply_add(Precision precision) {
  constexpr double per_lane = 2.0 * chains, of_tiles = 2.0 * 16 * 16 * 32 * tile_chains;
  if (precision == Precision::bf16)
    return bf16_isa() == Bf16Isa::amx ? MultiplyAdd{multiply_add_amx, of_tiles}
                                      : MultiplyAdd{multiply_add_avx512_bf16, per_lane * 32};
  switch (cpu_isa()) {
    case CpuIsa::avx512: return {multiply_add_avx512, per_lane * 16};
    case CpuIsa::avx2: return {multiply_add_avx2, per_lane * 8};
    case CpuIsa::sse41: break;
  }
  return {multiply_add_sse41, per_lane * 4};
}

// An ordinary loop rather than memcpy(), which would choose its own instructions.
WARPSTEP_LOOP void copy_loop(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}

volatile float unread;  // keeps results alive

template <class Run>
double seconds_of(Run run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Sorted seconds of the runs that fit into a quarter of a second, at least five.
template <class Run>
std::vector<double> times_of(Run run) {
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || total < 0.25; total += times.back())
    times.push_back(seconds_of(run));
  std::sort(times.begin(), times.end());
  return times;
}

void measure_flops(CpuRoofs& roofs, Precision precision) {
  constexpr double long_enough_s = 4e-3;  // against starting the team
  const MultiplyAdd multiply = multiply_add(precision);
  volatile float one = 1;
  std::int64_t rounds = 1 << 14;
  const auto all_threads = [&] {
#pragma omp parallel
    unread = multiply.run(one, rounds);
  };
  all_threads();
  while (seconds_of(all_threads) < long_enough_s) rounds *= 2;
  const double flops = multiply.flops * static_cast<double>(rounds) * omp_get_max_threads();
  const std::vector<double> times = times_of(all_threads);
  roofs.flops_per_s = flops / times.front();
  roofs.steadiness = times.front() * static_cast<double>(times.size()) /
                     std::accumulate(times.begin(), times.end(), 0.0);
}

void measure_bytes(CpuRoofs& roofs, const Backend& backend) {
  constexpr std::int64_t count = std::int64_t{1} << 24;  // 64 MiB each
  constexpr std::size_t bytes = count * sizeof(float);
  const std::shared_ptr<std::byte> from = backend.allocate(bytes), to = backend.allocate(bytes);
  backend.fill(from.get(), 0x3F, bytes);
  const auto* x = reinterpret_cast<const float*>(from.get());
  auto* y = reinterpret_cast<float*>(to.get());
  const auto copy = cpu::vectorized<copy_loop>();
  const auto all_threads = [&] {
    cpu::for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
      copy(x + begin, y + begin, end - begin);
    });
  };
  all_threads();  // the pages of `to` are new
  roofs.bytes_per_s = 2.0 * static_cast<double>(bytes) / times_of(all_threads).front();
}

constexpr std::size_t line_floats = 16;

std::size_t flushed_lines() {
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  const std::size_t bytes = std::max<std::size_t>(
      std::size_t{4} << 20, cache > 0 ? 2 * static_cast<std::size_t>(cache) : 0);
  return bytes / (line_floats * sizeof(float));
}

}  // namespace

CpuRoofs measure_cpu_roofs(const Backend& backend, Precision precision) {
  CpuRoofs roofs;
  measure_flops(roofs, precision);
  measure_bytes(roofs, backend);
  return roofs;
}

ColdCaches::ColdCaches()
    : lines_(flushed_lines()),
      memory_(lines_ * line_floats * static_cast<std::size_t>(omp_get_max_threads()), 1.0F) {}

void ColdCaches::flush() {
#pragma omp parallel
  {
    const float* own =
        memory_.data() + static_cast<std::size_t>(omp_get_thread_num()) * lines_ * line_floats;
    float sum = 0;
    for (std::size_t i = 0; i < lines_; ++i) sum += own[i * line_floats];
    unread = sum;
  }
}

}  // namespace warpstep::bench

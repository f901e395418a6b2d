#include "engine/core/cpu_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <thread>
#include <vector>

#include "engine/core/clock.h"
#include "engine/core/cpu_isa.h"
#include "engine/core/cpus.h"
#include "engine/core/thread.h"

namespace warpstep {
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

constexpr int trials = 7;
constexpr std::uint64_t trial_ns = 2'000'000;
constexpr std::uint64_t most_ns = 35'000'000;  // on a busy machine fewer trials fit

// Threads that wait for each other by yielding: a sleep would delay some of them by 50 us.
class Rendezvous {
 public:
  explicit Rendezvous(int threads) : threads_(threads) {}
  // Returns false if not all threads could be started.
  bool meet() {
    const int goal = (arrived_++ / threads_ + 1) * threads_;
    while (arrived_ < goal && !cancelled_) std::this_thread::yield();
    return !cancelled_;
  }
  void cancel() { cancelled_ = true; }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<bool> cancelled_{false};
};

std::atomic<float> kept_sum;  // keeps the loops alive

// Time in which another program had the core does not count.
std::uint64_t own_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// Rounds of about trial_ns, on one thread.
std::int64_t calibrated_rounds(const MultiplyAdds& loop) {
  for (std::int64_t rounds = 1 << 10;; rounds *= 2) {
    const std::uint64_t begin = now_ns();
    kept_sum = loop.run(1, rounds);
    const std::uint64_t ns = std::max<std::uint64_t>(1, now_ns() - begin);
    if (ns > trial_ns / 4)
      return std::max<std::int64_t>(
          1, rounds * static_cast<std::int64_t>(trial_ns) / static_cast<std::int64_t>(ns));
  }
}

}  // namespace

MultiplyAdds multiply_adds(bool bf16) {
  constexpr double per_lane = 2.0 * chains, of_tiles = 2.0 * 16 * 16 * 32 * tile_chains;
  if (bf16)
    return bf16_isa() == Bf16Isa::amx ? MultiplyAdds{multiply_add_amx, of_tiles}
                                      : MultiplyAdds{multiply_add_avx512_bf16, per_lane * 32};
  switch (cpu_isa()) {
    case CpuIsa::avx512: return {multiply_add_avx512, per_lane * 16};
    case CpuIsa::avx2: return {multiply_add_avx2, per_lane * 8};
    case CpuIsa::sse41: break;
  }
  return {multiply_add_sse41, per_lane * 4};
}

double measure_peak_flops(int threads, bool bf16, std::span<const int> cpus) {
  if (threads < 1) return 0;
  const MultiplyAdds loop = multiply_adds(bf16);
  const auto count = static_cast<std::size_t>(threads);
  std::vector<std::vector<std::uint64_t>> times(trials, std::vector<std::uint64_t>(count));
  Rendezvous all(threads);
  const std::int64_t rounds = calibrated_rounds(loop);
  const std::uint64_t begin_ns = now_ns();
  const auto work = [&](std::size_t thread) {
    if (thread < cpus.size()) run_on(cpus.subspan(thread, 1));
    for (auto& trial : times) {
      if (thread == 0 && now_ns() - begin_ns > most_ns && &trial != &times.front()) all.cancel();
      if (!all.meet()) return;
      const std::uint64_t begin = own_cpu_ns();
      kept_sum = loop.run(1, rounds);
      trial[thread] = std::max<std::uint64_t>(1, own_cpu_ns() - begin);
    }
  };
  std::vector<std::thread> started;
  try {
    const SignalsBlocked blocked;
    for (std::size_t i = 0; i < count; ++i) started.emplace_back(work, i);
  } catch (const std::exception&) {  // a limit on threads or memory
    all.cancel();
  }
  for (std::thread& thread : started) thread.join();
  if (started.size() < count) return 0;
  double best = 0;
  for (const auto& trial : times) {
    double rate = 0;
    for (const std::uint64_t ns : trial)
      if (ns > 0) rate += loop.flops * static_cast<double>(rounds) * 1e9 / static_cast<double>(ns);
    best = std::max(best, rate);
  }
  return best;
}

}  // namespace warpstep

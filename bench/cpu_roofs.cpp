#include "bench/cpu_roofs.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/core/cpu_peak.h"
#include "engine/run/runner.h"
#include "kernels/cpu/team.h"

namespace warpstep::bench {
namespace {

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
  const MultiplyAdds multiply = multiply_adds(precision == Precision::bf16);
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
  const StepScope scope(backend);
  CpuRoofs roofs;
  measure_flops(roofs, precision);
  measure_bytes(roofs, backend);
  return roofs;
}

ColdCaches::ColdCaches(const Backend& backend) : lines_(flushed_lines()) {
  const StepScope scope(backend);
  memory_.resize(lines_ * line_floats * static_cast<std::size_t>(omp_get_max_threads()), 1.0F);
}

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

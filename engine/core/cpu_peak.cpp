#include "engine/core/cpu_peak.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <thread>
#include <vector>

#include "engine/core/clock.h"
#include "engine/core/cpus.h"
#include "engine/core/thread.h"

namespace warpstep {
namespace {

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

// Parallel and vectorised loops: arrays divided into chunks among the OpenMP team, one source for
// several instruction sets, and the state of the team's threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "engine/core/cpu_isa.h"

namespace warpstep::cpu {

// Chunks have a fixed size, so that results have the same bits with any number of threads.
constexpr std::int64_t chunk_elements = 16384;  // 64 KiB per operand

constexpr std::int64_t chunks(std::int64_t count) {
  return (count + chunk_elements - 1) / chunk_elements;
}

// Tasks [0, count) of a parallel region. Each thread does its share and then what is left of the
// others': a core that other programs use, or a slower core, delays the region by a task instead of
// by a share. So what a task computes must not depend on the thread that does it.
class SharedTasks {
 public:
  enum class Order : std::uint8_t { forwards, backwards };  // of a thread in its share

  SharedTasks(std::int64_t count, int threads, Order order = Order::forwards)
      : shares_(std::min(threads, most)), order_(order) {
    for (int i = 0; i < shares_; ++i) {
      Share& s = share_[static_cast<std::size_t>(i)];
      s.begin = count * i / shares_;
      s.end = count * (i + 1) / shares_;
      s.next.store(s.begin, std::memory_order_relaxed);
    }
  }

  // Calls run(task) until none is left, by each thread of the region.
  template <class Run>
  void take(Run run) {
    for (int i = 0, own = omp_get_thread_num(); i < shares_; ++i) {
      Share& s = share_[static_cast<std::size_t>((own + i) % shares_)];
      // Reading it first leaves the line of a share that is done in every core's cache.
      while (s.next.load(std::memory_order_relaxed) < s.end) {
        const std::int64_t task = s.next.fetch_add(1, std::memory_order_relaxed);
        if (task >= s.end) break;
        run(order_ == Order::forwards ? task : s.begin + s.end - 1 - task);
      }
    }
  }

 private:
  static constexpr int most = 64;  // more threads have a share together
  struct alignas(64) Share {       // a line of the cache each
    std::atomic<std::int64_t> next;
    std::int64_t begin, end;
  };
  std::array<Share, most> share_;  // of which the first are used
  int shares_;
  Order order_;
};

// Calls run(task) for tasks [0, count), `in_parallel` on at most `threads`, or on this one.
template <class Run>
void for_tasks(std::int64_t count, bool in_parallel, Run run,
               SharedTasks::Order order = SharedTasks::Order::forwards,
               int threads = omp_get_max_threads()) {
  if (!in_parallel) {
    for (std::int64_t i = 0; i < count; ++i)
      run(order == SharedTasks::Order::forwards ? i : count - 1 - i);
    return;
  }
  SharedTasks tasks(count, threads, order);
#pragma omp parallel num_threads(threads)
  tasks.take(run);
}

// Calls run(begin, end) for the chunks of [0, count); more than four chunks run in parallel.
template <class Run>
void for_chunks(std::int64_t count, Run run) {
  for_tasks(chunks(count), count > 4 * chunk_elements, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * chunk_elements;
    run(begin, std::min(count, begin + chunk_elements));
  });
}

// One source for several instruction sets: a loop is a function marked WARPSTEP_LOOP, and
// vectorized<loop>() is its version for cpu_isa(). The compiler inlines the loop into one version
// per instruction set.
//
//   WARPSTEP_LOOP void relu_loop(const float* x, float* y, std::int64_t count) { ... }
//   const auto relu = vectorized<relu_loop>();
//
// Products and sums do not contract to fused multiply-adds, so all versions of a loop that adds in
// one order give the same bits; but for sources that CMakeLists.txt compiles with contraction.
#define WARPSTEP_LOOP inline __attribute__((always_inline))

// Asks for what a loop reads `bytes` behind a block of `elements`; beyond an array's end that is
// harmless.
template <std::int64_t elements, std::int64_t bytes, class T>
WARPSTEP_LOOP void ask_ahead(const T* block) {
  constexpr std::int64_t line = 64, size = elements * sizeof(T);
  const char* const at = reinterpret_cast<const char*>(block) + bytes;
  for (std::int64_t i = 0; i < size; i += line) __builtin_prefetch(at + i);
}

template <auto loop>
struct Versions;

template <class... Arguments, class Result, Result (*loop)(Arguments...)>
struct Versions<loop> {
#if defined(__x86_64__)
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))) static Result avx512(
      Arguments... arguments) {
    return loop(arguments...);
  }
  __attribute__((target("avx2,fma"))) static Result avx2(Arguments... arguments) {
    return loop(arguments...);
  }
#endif
  static Result base(Arguments... arguments) {
    return loop(arguments...);
  }
};

// A loop over vectors of that many `lanes` has no version for narrower registers, whose
// vector_lanes() are fewer.
template <auto loop, int lanes = 4>
auto vectorized() {
#if defined(__x86_64__)
  if constexpr (lanes == 16) return &Versions<loop>::avx512;
  if (cpu_isa() == CpuIsa::avx512) return &Versions<loop>::avx512;
  if constexpr (lanes == 8) return &Versions<loop>::avx2;
  if (cpu_isa() == CpuIsa::avx2) return &Versions<loop>::avx2;
#endif
  return &Versions<loop>::base;
}

// Floats per vector register.
inline std::int64_t vector_lanes() {
  return cpu_isa() == CpuIsa::avx512 ? 16 : cpu_isa() == CpuIsa::avx2 ? 8 : 4;
}

// That of cpu_isa(), of what there is for each instruction set.
template <class L>
const L& of_isa(const L& avx512, const L& avx2, const L& plain) {
  return cpu_isa() == CpuIsa::avx512 ? avx512 : cpu_isa() == CpuIsa::avx2 ? avx2 : plain;
}

// While it exists, parallel loops of the calling thread have that many threads, with OMP_DYNAMIC,
// too, which takes fewer where the machine is busy. OpenMP's number belongs to each calling thread,
// which may use several backends, and other programs' code.
class TeamSize {
 public:
  explicit TeamSize(int threads);
  ~TeamSize();
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_, was_dynamic_;
};

// Starts the calling thread's team of so many threads, unless it has one. From now on its other
// threads block asynchronous signals (engine/core/thread.h) and flush denormals, and with a
// thread_places() (engine/core/cpus.h) each runs on its own CPU; changing that in every step
// would wake them, which costs 20 us if they sleep. Throws DeviceError if the system refuses the
// threads: libgomp itself would end the program. fork() in this thread ends the team.
void settle_team(int threads);

// For the calling thread, around a step with so many threads, which may be nested: rounds to
// nearest, traps nothing, flushes denormals. One costs 100 cycles per instruction that reads it and
// makes updates of decayed moments 2 to 9 times slower. A thread's first step settles its team.
void begin_step(int threads);
void end_step();

}  // namespace warpstep::cpu

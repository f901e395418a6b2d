// The threads that OpenMP, and oneDNN through it, share a call's work among.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/core/cpu_isa.h"

namespace warpstep::cpu {

// Loops over long arrays, divided among the team in pieces of a fixed size: the same bits from any
// team.

constexpr std::int64_t chunk_elements = 16384;  // elements of a task: 64 KiB an operand

constexpr std::int64_t chunks(std::int64_t count) {
  return (count + chunk_elements - 1) / chunk_elements;
}

// Calls run(begin, end) for the chunks of [0, count), on the team where there are more than four.
template <class Run>
void for_chunks(std::int64_t count, Run run) {
#pragma omp parallel for schedule(static) if (count > 4 * chunk_elements)
  for (std::int64_t begin = 0; begin < count; begin += chunk_elements)
    run(begin, std::min(count, begin + chunk_elements));
}

}  // namespace warpstep::cpu

// One source, several instruction sets. A loop is a function marked WARPSTEP_LOOP, and
// vectorized<loop>() is the version of it for cpu_isa(): the compiler makes one for each set, and
// inlines the loop into all of them.
//
//   WARPSTEP_LOOP void relu_loop(const float* x, float* y, std::int64_t count) { ... }
//   const auto relu = vectorized<relu_loop>();
//
// Products and sums do not contract, so that all versions of a loop that adds in one order give the
// same bits.

#define WARPSTEP_LOOP inline __attribute__((always_inline))

namespace warpstep::cpu {

template <auto loop>
struct Versions;

template <class... Arguments, class Result, Result (*loop)(Arguments...)>
struct Versions<loop> {
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))) static Result avx512(
      Arguments... arguments) {
    return loop(arguments...);
  }
  __attribute__((target("avx2,fma"))) static Result avx2(Arguments... arguments) {
    return loop(arguments...);
  }
  static Result sse41(Arguments... arguments) { return loop(arguments...); }
};

template <auto loop>
auto vectorized() {
  switch (cpu_isa()) {
    case CpuIsa::avx512: return &Versions<loop>::avx512;
    case CpuIsa::avx2: return &Versions<loop>::avx2;
    case CpuIsa::sse41: break;
  }
  return &Versions<loop>::sse41;
}

// Floats of a vector register.
inline std::int64_t vector_lanes() {
  return cpu_isa() == CpuIsa::avx512 ? 16 : cpu_isa() == CpuIsa::avx2 ? 8 : 4;
}

// Makes the team of the calling thread, or takes the one that it has. From now on its other threads
// handle no asynchronous signal (engine/core/thread.h) and flush denormals: to change that for
// each step would wake them, 20 us where they sleep. Throws DeviceError when the system does not
// give the threads: libgomp itself would end the program.
void settle_team();

// For the calling thread, around a step. A denormal costs some 100 cycles in
// every instruction that meets it: moments that have decayed so far make an update 2 to 9 times as
// slow.
void flush_denormals();
void restore_denormals();

}  // namespace warpstep::cpu

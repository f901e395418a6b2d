// One source, several instruction sets. A loop is a function marked WARPSTEP_LOOP, and
// vectorized<loop>() is the version of it for cpu_isa(): the compiler makes one for each set, and
// inlines the loop into all of them.
//
//   WARPSTEP_LOOP void relu_loop(const float* x, float* y, std::int64_t count) { ... }
//   const auto relu = vectorized<relu_loop>();
//
// Products and sums do not contract, so that all versions of a loop that adds in one order give the
// same bits.
#pragma once

#include "engine/core/cpu_isa.h"

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

}  // namespace warpstep::cpu

// Rows of elements as they are stored: copied to floats and back, and added.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/bf16_loops.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {

template <class From, class To>
WARPSTEP_LOOP void convert_row_loop(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded_to<To>(as_float(from[i]));
}
// to [count] = from, to the nearest, ties to even. An instruction rounds where the CPU has bf16,
// and reads denormals as zeros, like all of a step; the compiler makes ten of it.
template <class From, class To>
void convert_row(const From* from, std::int64_t count, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(from, count, to);
    return;
  } else if constexpr (std::is_same_v<To, Bf16>) {
    static const auto round_rows = bf16_isa() != Bf16Isa::none ? bf16_loops().round_rows : nullptr;
    if (round_rows) return round_rows(from, 0, 1, count, to, 0);
  }
  static const auto loop = vectorized<convert_row_loop<From, To>>();
  loop(from, to, count);
}

// Calls run(begin, end, floats) for blocks of [begin, end) that fit into the first cache: what it
// writes there become elements of `to`, from its place `begin` on.
template <class T, class Run>
void write_floats(T* to, std::int64_t begin, std::int64_t end, Run run) {
  if constexpr (std::is_same_v<T, float>) {
    run(begin, end, to + begin);
  } else {
    constexpr std::int64_t most = 1024;
    alignas(64) float floats[most];
    for (; begin < end; begin += most) {
      const std::int64_t count = std::min(most, end - begin);
      run(begin, begin + count, floats);
      convert_row(floats, count, to + begin);
    }
  }
}

template <class A, class B, class Y>
WARPSTEP_LOOP void add_row_loop(const A* a, const B* b, Y* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t c = 0; c < count; ++c) y[c] = rounded_to<Y>(as_float(a[c]) + as_float(b[c]));
}
// y [count] = a + b, rounded once; y may be a or b.
template <class A, class B, class Y>
void add_row(const A* a, const B* b, std::int64_t count, Y* y) {
  static const auto loop = vectorized<add_row_loop<A, B, Y>>();
  loop(a, b, y, count);
}

}  // namespace warpstep::cpu

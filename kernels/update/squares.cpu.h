// Sums of squares, in double.
#pragma once

#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {

template <class T>
WARPSTEP_LOOP double square_of(T x) {
  const auto wide = static_cast<double>(as_float(x));
  return wide * wide;
}

// A core alone reads a stream at a fraction of what the memory gives.
template <class T>
WARPSTEP_LOOP double squares_of_loop(const T* x, std::int64_t count) {
  constexpr std::int64_t lanes = 16, ahead_bytes = 4096;
  double sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
    ask_ahead<lanes, ahead_bytes>(x + i);
    for (std::int64_t l = 0; l < lanes; ++l) sums[l] += square_of(x[i + l]);
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t i = whole; i < count; ++i) sum += square_of(x[i]);
  return sum;
}
template <class T>
inline const auto squares_of = vectorized<squares_of_loop<T>>();

// `partial` has one element per chunk. The result is finite exactly if all elements are: squares of
// f32 do not overflow in double.
template <class T>
double squares(const T* x, std::int64_t count, double* partial) {
  for_chunks(count, [&](std::int64_t i, std::int64_t end) {
    partial[i / chunk_elements] = squares_of<T>(x + i, end - i);
  });
  double sum = 0;
  for (std::int64_t c = 0; c < chunks(count); ++c) sum += partial[c];
  return sum;
}

}  // namespace warpstep::cpu

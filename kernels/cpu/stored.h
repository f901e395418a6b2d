// Elements as kernels store them, float or bf16, behind one source: a loop is a template of the
// stored type T, loads with as_float(), computes in float and stores with rounded_to<T>(), which
// rounds once. For float both are nothing at all, so its loops keep their bits and their speed.
//
//   template <class T>
//   WARPSTEP_LOOP void relu_loop(const T* x, T* y, std::int64_t count) {
//     for (std::int64_t i = 0; i < count; ++i)
//       y[i] = rounded_to<T>(rectified(as_float(x[i])));
//   }
//   template <class T>
//   const auto relu = vectorized<relu_loop<T>>();
//
// A kernel that adds into its result needs floats of its own for the sums.
#pragma once

#include <type_traits>

#include "engine/core/bf16.h"
#include "engine/core/types.h"

namespace warpstep::cpu {

inline __attribute__((always_inline)) float as_float(float number) {
  return number;
}
inline __attribute__((always_inline)) float as_float(Bf16 number) {
  return widened(number);
}

template <class T>
inline __attribute__((always_inline)) T rounded_to(float number) {
  if constexpr (std::is_same_v<T, float>)
    return number;
  else
    return narrowed(number);
}

// A relu: NaN stays NaN, and -0 becomes 0.
inline __attribute__((always_inline)) float rectified(float x) {
  return x <= 0 ? 0 : x;
}

// The same for GNU vectors of floats, whatever their length.
template <class Floats>
inline __attribute__((always_inline)) void rectify(Floats& x) {
  x = x <= 0 ? Floats{} : x;
}
// The compiler splits them where the instruction set has only narrower registers.
template <std::size_t lanes>
struct VectorOf {
  using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
  using Ints [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;
  using Words [[gnu::vector_size(lanes * sizeof(std::uint32_t))]] = std::uint32_t;
  using Halves [[gnu::vector_size(lanes * sizeof(std::uint16_t))]] = std::uint16_t;
  using Bytes [[gnu::vector_size(lanes)]] = std::uint8_t;
};
template <class Floats, class T>
inline __attribute__((always_inline)) void load_stored(Floats& vector, const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    __builtin_memcpy(&vector, from, sizeof vector);
  } else {
    using Vector = VectorOf<sizeof(Floats) / sizeof(float)>;
    typename Vector::Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    const typename Vector::Words words = __builtin_convertvector(halves, typename Vector::Words)
                                         << 16;
    __builtin_memcpy(&vector, &words, sizeof vector);
  }
}
template <class Floats, class T>
inline __attribute__((always_inline)) void store_stored(T* to, const Floats& vector) {
  if constexpr (std::is_same_v<T, float>) {
    __builtin_memcpy(to, &vector, sizeof vector);
  } else {
    using Vector = VectorOf<sizeof(Floats) / sizeof(float)>;
    typename Vector::Words bits;
    __builtin_memcpy(&bits, &vector, sizeof bits);
    const typename Vector::Words nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16,
                                 quiet = bits >> 16 | 0x40;
    const typename Vector::Words words = (bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : nearest;
    const typename Vector::Halves halves = __builtin_convertvector(words, typename Vector::Halves);
    __builtin_memcpy(to, &halves, sizeof halves);
  }
}

// Bytes in memory as integers. GCC 12 makes single instructions of the loops where the set has
// them, but 50 of one __builtin_convertvector() for 16 bytes; two of them narrow well without
// AVX-512. Later versions take the widening loop element by element.
template <class Ints>
inline __attribute__((always_inline)) void load_bytes(Ints& ints, const std::uint8_t* from) {
  constexpr std::size_t lanes = sizeof(Ints) / sizeof(std::int32_t);
  typename VectorOf<lanes>::Bytes bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
#if !defined(__clang__) && __GNUC__ < 13
  std::int32_t wide[lanes];
  for (std::size_t l = 0; l < lanes; ++l) wide[l] = bytes[l];
  __builtin_memcpy(&ints, wide, sizeof ints);
#else
  const auto halves = __builtin_convertvector(bytes, typename VectorOf<lanes>::Halves);
  ints = __builtin_convertvector(halves, Ints);
#endif
}
template <class Ints>
inline __attribute__((always_inline)) void store_bytes(std::uint8_t* to, const Ints& ints) {
  constexpr std::size_t lanes = sizeof(Ints) / sizeof(std::int32_t);
  using V = VectorOf<lanes>;
  typename V::Bytes bytes;
  if constexpr (lanes > 8) {
    for (std::size_t l = 0; l < lanes; ++l) bytes[l] = static_cast<std::uint8_t>(ints[l]);
  } else {
    const auto half = __builtin_convertvector(ints, typename V::Halves);
    bytes = __builtin_convertvector(half, typename V::Bytes);
  }
  __builtin_memcpy(to, &bytes, sizeof bytes);
}

// The channel at which the vector after the one at `c` begins; `channels` after the last one, which
// overlaps the one before it if the channels are not a multiple of `lanes`.
template <int lanes>
inline __attribute__((always_inline)) std::int64_t next_vector(std::int64_t c,
                                                               std::int64_t channels) {
  c += lanes;
  return c >= channels || c + lanes <= channels ? c : channels - lanes;
}

// run.operator()<T>() with the type that elements of `dtype`, f32 or bf16, are stored in.
template <class Run>
auto with_stored(DType dtype, Run run) {
  if (dtype == DType::bf16) return run.template operator()<Bf16>();
  return run.template operator()<float>();
}

}  // namespace warpstep::cpu

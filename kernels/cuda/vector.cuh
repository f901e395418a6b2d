// Loads and stores of whole words: with 16 bytes per access, HBM is saturated by the fewest
// instructions, and a warp's accesses merge into full 128-byte lines. Arithmetic is on arrays of
// float; f16 and bf16 are converted in pairs, one instruction per pair.
#pragma once

#include <cstring>

#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

// Elements of T in 16 bytes.
template <class T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

template <std::size_t bytes>
struct WordOf;
template <>
struct WordOf<4> {
  using Type = unsigned;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

// N elements of T as stored in memory: 4, 8 or 16 bytes, aligned to their size.
template <class T, int N>
struct Packed {
  typename WordOf<N * sizeof(T)>::Type word{};
};

template <int N, class T>
__device__ inline Packed<T, N> read(const T* from) {
  using Word = decltype(Packed<T, N>::word);
  return {*reinterpret_cast<const Word*>(from)};
}

template <class T, int N>
__device__ inline void write(T* to, const Packed<T, N>& packed) {
  using Word = decltype(Packed<T, N>::word);
  *reinterpret_cast<Word*>(to) = packed.word;
}

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(__half x) {
  return __half2float(x);
}
__device__ inline float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float2 widen(__half2 x) {
  return __half22float2(x);
}
__device__ inline float2 widen(__nv_bfloat162 x) {
  return __bfloat1622float2(x);
}

// From float to one or two elements, rounded to nearest even.
template <class T>
struct Narrow;
template <>
struct Narrow<float> {
  static __device__ float one(float x) { return x; }
};
template <>
struct Narrow<__half> {
  using Pair = __half2;
  static __device__ __half one(float x) { return __float2half_rn(x); }
  static __device__ Pair two(float x, float y) { return __floats2half2_rn(x, y); }
};
template <>
struct Narrow<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static __device__ __nv_bfloat16 one(float x) { return __float2bfloat16_rn(x); }
  static __device__ Pair two(float x, float y) { return __floats2bfloat162_rn(x, y); }
};

template <class T>
__device__ inline T narrow(float x) {
  return Narrow<T>::one(x);
}

// As narrowed_at_random() of the host.
__device__ inline __nv_bfloat16 narrow_at_random(float x, unsigned random) {
  const unsigned bits = __float_as_uint(x);
  const unsigned quiet = bits >> 16 | 0x40U;
  const unsigned half = (bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : (bits + random) >> 16;
  return __ushort_as_bfloat16(static_cast<unsigned short>(half));
}

// e^x and 1 / x for what is stored as T: in 16 bits by one instruction, x below 2^126.
template <class T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == sizeof(float))
    return expf(x);
  else
    return fast_exp2(x * 1.44269504F);
}
template <class T>
__device__ inline float reciprocal(float x) {
  if constexpr (sizeof(T) == sizeof(float))
    return 1 / x;
  else
    return fast_reciprocal(x);
}

// A relu, by itself or fused. NaN stays NaN; in this form one instruction from sm_80 on.
__device__ inline float rectified(float x) {
  return x <= 0 ? 0 : x;
}

template <class T, int N>
__device__ inline void unpack(const Packed<T, N>& packed, float (&to)[N]) {
  if constexpr (sizeof(T) == sizeof(float)) {
    std::memcpy(to, &packed.word, sizeof to);
  } else {
    typename Narrow<T>::Pair pairs[N / 2];
    std::memcpy(static_cast<void*>(pairs), &packed.word, sizeof pairs);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float2 pair = widen(pairs[i]);
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
}

template <class T, int N>
__device__ inline Packed<T, N> pack(const float (&from)[N]) {
  Packed<T, N> packed;
  if constexpr (sizeof(T) == sizeof(float)) {
    std::memcpy(&packed.word, from, sizeof from);
  } else {
    typename Narrow<T>::Pair pairs[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pairs[i] = Narrow<T>::two(from[2 * i], from[2 * i + 1]);
    std::memcpy(&packed.word, pairs, sizeof pairs);
  }
  return packed;
}

template <class T, int N>
__device__ inline void load(const T* from, float (&to)[N]) {
  unpack(read<N>(from), to);
}

template <class T, int N>
__device__ inline void store(T* to, const float (&from)[N]) {
  write(to, pack<T>(from));
}

}  // namespace warpstep::cuda

// The functions that device code calls, for the host compiler; included only by simt.h. A kernel
// that needs another of CUDA's functions adds it here, with a test in emulator_test.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tests/cuda_on_cpu/device_math.h"
#include "tests/cuda_on_cpu/simt.h"

#undef __global__
#undef __shared__
#undef __launch_bounds__
#define __global__ [[maybe_unused]]
#define __launch_bounds__(...)
#define __shared__ static
#define SIMT_HERE std::source_location here = std::source_location::current()

// From shared_memory.ld; null in a program that is linked without it.
extern std::byte simt_shared_begin[] __attribute__((weak, visibility("hidden")));
extern std::byte simt_shared_end[] __attribute__((weak, visibility("hidden")));
namespace {
[[maybe_unused]] const warpstep::simt::SharedArrays simt_shared_arrays(simt_shared_begin,
                                                                       simt_shared_end);
}

namespace warpstep::simt {

template <class T>
T shuffle(unsigned mask, T value, unsigned source, bool inside, Operation operation,
          std::source_location where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const Gathered& all = gather(mask, bits, operation, where);
  if (!inside) return value;
  if ((mask >> source & 1U) == 0)
    fail_here(operation, where, "reads lane " + std::to_string(source) + ", not in its mask");
  std::memcpy(static_cast<void*>(&value), &all[source], sizeof value);
  return value;
}

// The first lane of the calling lane's group of `width`.
inline unsigned group(int width, Operation operation, std::source_location where) {
  const auto lanes = static_cast<unsigned>(width);
  if (!std::has_single_bit(lanes) || lanes > 32)
    fail_here(operation, where, "width " + std::to_string(width) + " is no power of 2 up to 32");
  return lane() / lanes * lanes;
}

inline unsigned vote(unsigned mask, int predicate, Operation operation,
                     std::source_location where) {
  const Gathered& all = gather(mask, predicate != 0 ? 1 : 0, operation, where);
  unsigned bits = 0;
  for (unsigned l = 0; l < all.size(); ++l)
    if ((mask >> l & 1U) != 0) bits |= static_cast<unsigned>(all[l]) << l;
  return bits;
}

template <class T, class Update>
T atomically(T* address, Update update) {
  const std::atomic_ref<T> cell{*address};
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, update(old), std::memory_order_relaxed)) {
  }
  return old;
}

template <class T>
using Same = std::type_identity_t<T>;  // not deduced from

// The functions of kernels/cuda/tensor_cores.cuh.
inline void load_matrices(unsigned (&to)[4], const void* row, bool transposed, SIMT_HERE) {
  const auto address = std::bit_cast<std::uintptr_t>(row);
  constexpr Operation operation = Operation::load_matrices;
  if (address % 16 != 0) fail_here(operation, here, "reads a row at no multiple of 16 bytes");
  const Gathered& rows = gather(0xffffffffU, address, operation, here);
  const auto number = [&](unsigned matrix, unsigned of_row, unsigned column) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, std::bit_cast<const std::uint16_t*>(rows[8 * matrix + of_row]) + column, 2);
    return std::uint32_t{bits};
  };
  const unsigned one = lane() / 4, two = 2 * (lane() % 4);
  for (unsigned m = 0; m < 4; ++m)
    to[m] = transposed ? number(m, two, one) | number(m, two + 1, one) << 16
                       : number(m, one, two) | number(m, one, two + 1) << 16;
}

template <class T>
void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, SIMT_HERE) {
  constexpr auto widen = [](std::uint16_t bits) {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return static_cast<float>(value);
  };
  Fragments own;
  const unsigned words[]{a[0], a[1], a[2], a[3], b0, b1};
  for (unsigned w = 0; w < std::size(words); ++w) {
    own[2 * w] = widen(static_cast<std::uint16_t>(words[w]));
    own[2 * w + 1] = widen(static_cast<std::uint16_t>(words[w] >> 16));
  }
  multiply_fragments(d, own, here);
}

}  // namespace warpstep::simt

// ---- barriers

inline void __syncthreads(SIMT_HERE) {
  warpstep::simt::block_barrier(warpstep::simt::Operation::syncthreads, false, here);
}
inline int __syncthreads_count(int predicate, SIMT_HERE) {
  return static_cast<int>(warpstep::simt::block_barrier(
      warpstep::simt::Operation::syncthreads_count, predicate != 0, here));
}
inline int __syncthreads_or(int predicate, SIMT_HERE) {
  return warpstep::simt::block_barrier(warpstep::simt::Operation::syncthreads_or, predicate != 0,
                                       here) != 0;
}
inline int __syncthreads_and(int predicate, SIMT_HERE) {
  return warpstep::simt::block_barrier(warpstep::simt::Operation::syncthreads_and, predicate == 0,
                                       here) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU, SIMT_HERE) {
  warpstep::simt::gather(mask, 0, warpstep::simt::Operation::syncwarp, here);
}
// Atomics take effect in program order and blocks run one by one, so a fence has nothing to do.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- warps: a lane outside the group of `width` gives the caller's own value, as in CUDA

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, SIMT_HERE) {
  constexpr auto operation = warpstep::simt::Operation::shfl;
  const unsigned first = warpstep::simt::group(width, operation, here);
  const unsigned offset = static_cast<unsigned>(source) % static_cast<unsigned>(width);
  return warpstep::simt::shuffle(mask, value, first + offset, true, operation, here);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize, SIMT_HERE) {
  constexpr auto operation = warpstep::simt::Operation::shfl_xor;
  const unsigned first = warpstep::simt::group(width, operation, here);
  const unsigned source = warpstep::simt::lane() ^ static_cast<unsigned>(bits);
  // Earlier groups can be read, later ones cannot.
  const bool inside = source < first + static_cast<unsigned>(width);
  return warpstep::simt::shuffle(mask, value, source, inside, operation, here);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, SIMT_HERE) {
  constexpr auto operation = warpstep::simt::Operation::shfl_down;
  const unsigned first = warpstep::simt::group(width, operation, here);
  const unsigned source = warpstep::simt::lane() + delta;
  const bool inside = source < first + static_cast<unsigned>(width);
  return warpstep::simt::shuffle(mask, value, source, inside, operation, here);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, SIMT_HERE) {
  constexpr auto operation = warpstep::simt::Operation::shfl_up;
  const unsigned first = warpstep::simt::group(width, operation, here);
  const unsigned self = warpstep::simt::lane();
  const bool inside = self >= first + delta;
  return warpstep::simt::shuffle(mask, value, inside ? self - delta : self, inside, operation,
                                 here);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_HERE) {
  return warpstep::simt::vote(mask, predicate, warpstep::simt::Operation::ballot, here);
}
inline int __any_sync(unsigned mask, int predicate, SIMT_HERE) {
  return warpstep::simt::vote(mask, predicate, warpstep::simt::Operation::any, here) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SIMT_HERE) {
  return warpstep::simt::vote(mask, predicate, warpstep::simt::Operation::all, here) == mask;
}

// ---- atomics

template <class T>
T atomicAdd(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address,
                                    [value](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address,
                                    [value](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicMax(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address, [value](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address, [value](T old) { return std::min(old, value); });
}
template <class T>
T atomicExch(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* address, warpstep::simt::Same<T> expected, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address, [=](T old) { return old == expected ? value : old; });
}
template <class T>
T atomicOr(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address,
                                    [value](T old) { return static_cast<T>(old | value); });
}
template <class T>
T atomicAnd(T* address, warpstep::simt::Same<T> value) {
  return warpstep::simt::atomically(address,
                                    [value](T old) { return static_cast<T>(old & value); });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return warpstep::simt::atomically(address,
                                    [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}

// ---- loads and stores with a cache hint

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldca(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, warpstep::simt::Same<T> value) {
  *address = value;
}
template <class T>
void __stcg(T* address, warpstep::simt::Same<T> value) {
  *address = value;
}

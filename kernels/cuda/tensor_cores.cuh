// Products of 16-bit matrices on tensor cores, and the copies that feed them, of compute capability
// 8.0 and later. All lanes of a warp call each function but the copies.
//
// In a product d += a b of 16x16 by 16x8 numbers lane l holds, with i = l / 4 and j = 2 (l % 4):
//   a: (i, j) (i, j+1) | (i+8, j) .. | (i, j+8) .. | (i+8, j+8) ..    two numbers a word
//   b: (j, i) (j+1, i) | (j+8, i) (j+9, i)
//   d: (i, j), (i, j+1), (i+8, j), (i+8, j+1)
// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once

#include <cstring>

#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

// Four 8x8 matrices of 16-bit numbers from shared memory. Lane l has the address of row l % 8 of
// matrix l / 8, 16 bytes at a multiple of 16; in word m it gets the two numbers of matrix m that
// begin at row l / 4, column 2 (l % 4).
__device__ inline void load_matrices(unsigned (&to)[4], const void* row);

// Likewise, transposed: the two numbers in column l / 4, rows 2 (l % 4) and the next.
__device__ inline void load_transposed(unsigned (&to)[4], const void* row);

// d += a b, summed in f32. T is __half or __nv_bfloat16.
template <class T>
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1);

// Begins to copy 16 or 8 bytes from global to shared memory, both at multiples of as many; or to
// write zeros.
template <int bytes = 16>
__device__ inline void begin_copy(void* shared, const void* global, bool zeros);
// Commits the calling thread's copies since the last call as one group, which may be empty.
__device__ inline void end_group();
// Waits until at most `running` of the thread's newest groups are unfinished.
template <int running>
__device__ inline void await_groups();

#if defined(__CUDACC__)

// Without these instructions a kernel is compiled, for an older device, but never launched.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

__device__ inline void load_transposed(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Not volatile: it only computes, so that the compiler may move loads across it.
template <>
__device__ inline void multiply_add<__half>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                            unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4],
                                                   unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int bytes>
__device__ inline void begin_copy(void* shared, const void* global, bool zeros) {
  static_assert(bytes == 16 || bytes == 8);
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(global), "r"(zeros ? 0 : 16)
                 : "memory");
  else  // only copies of 16 bytes can leave out the first cache
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(to), "l"(global), "r"(zeros ? 0 : 8)
                 : "memory");
}
__device__ inline void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int running>
__device__ inline void await_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(running) : "memory");
}

#else

template <int bytes>
__device__ inline void begin_copy(void*, const void*, bool) {
  __trap();
}
__device__ inline void end_group() {
  __trap();
}
template <int running>
__device__ inline void await_groups() {
  __trap();
}
__device__ inline void load_matrices(unsigned (&)[4], const void*) {
  __trap();
}
__device__ inline void load_transposed(unsigned (&)[4], const void*) {
  __trap();
}
template <class T>
__device__ inline void multiply_add(float (&)[4], const unsigned (&)[4], unsigned, unsigned) {
  __trap();
}

#endif

#else  // on the tests' emulated grid

__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
  simt::load_matrices(to, row, false);
}

__device__ inline void load_transposed(unsigned (&to)[4], const void* row) {
  simt::load_matrices(to, row, true);
}

template <class T>
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  simt::multiply_add<T>(d, a, b0, b1);
}

template <int bytes>
__device__ inline void begin_copy(void* shared, const void* global, bool zeros) {
  simt::begin_copy(shared, global, bytes, zeros);
}
__device__ inline void end_group() {
  simt::end_group();
}
template <int running>
__device__ inline void await_groups() {
  simt::await_groups(running);
}

#endif

}  // namespace warpstep::cuda

// Functions of every element alone, of one operand or two of one shape. Bound by memory: 16 bytes
// per load and store, and enough loads in flight. By Little's law 4.8 TB/s at some 700 ns need 26
// KB in flight per multiprocessor; a thread issues all its loads, 64 bytes, before it uses the
// first, for which 400 resident threads of 2048 suffice.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned elementwise_threads = 256;

// F is a function object: f(a, b), where b is 0 unless F::binary.
template <class F>
inline constexpr unsigned vectors_per_thread = F::binary ? 2 : 4;

// At least so many blocks for each multiprocessor, as F says for bf16; 0: as ptxas likes.
template <class T, class F>
constexpr unsigned least_blocks() {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && requires { F::least_blocks_of_bf16; })
    return F::least_blocks_of_bf16;
  else
    return 0;
}

// y = f(a, b), 2 or 3 elements of T moved per element: 128x32x32x32 in f16 are 8.4 MB, 2 us per
// pass. y may be a or b, as each element is read and written by one thread: no __restrict__.
template <class T, class F>
__global__ void __launch_bounds__(elementwise_threads, least_blocks<T, F>())
    elementwise(const T* a, const T* b, T* y, unsigned vectors, unsigned rest, F f) {
  constexpr int width = vector_width<T>;
  constexpr unsigned count = vectors_per_thread<F>;
  const unsigned first = blockIdx.x * (elementwise_threads * count) + threadIdx.x;
  Packed<T, width> from_a[count], from_b[count];
#pragma unroll
  for (unsigned j = 0; j < count; ++j) {
    const unsigned v = first + j * elementwise_threads;
    if (v >= vectors) continue;
    from_a[j] = read<width>(a + std::size_t{v} * width);
    if constexpr (F::binary) from_b[j] = read<width>(b + std::size_t{v} * width);
  }
#pragma unroll
  for (unsigned j = 0; j < count; ++j) {
    const unsigned v = first + j * elementwise_threads;
    if (v >= vectors) continue;
    float x[width], z[width] = {};
    unpack(from_a[j], x);
    if constexpr (F::binary) unpack(from_b[j], z);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = f(x[i], z[i]);
    store(y + std::size_t{v} * width, x);
  }
  if (first < rest) {  // fewer than a vector's elements: threads of the first block
    const std::size_t i = std::size_t{vectors} * width + first;
    y[i] = narrow<T>(f(widen(a[i]), F::binary ? widen(b[i]) : 0));
  }
}

template <class T, class F>
void launch_elementwise_of(const char* name, const void* a, const void* b, void* y,
                           std::int64_t count, cudaStream_t stream) {
  constexpr int width = vector_width<T>;
  if (count == 0) return;
  const unsigned vectors = index32(name, "vectors of 16 bytes", count / width);
  const unsigned blocks =
      blocks_for(vectors > 0 ? vectors : 1, elementwise_threads * vectors_per_thread<F>);
  launch(name, elementwise<T, F>, {.grid = blocks, .block = elementwise_threads, .stream = stream},
         static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), vectors,
         static_cast<unsigned>(count % width), F{});
}

template <class F>
void launch_elementwise(const char* name, const void* a, const void* b, void* y, std::int64_t count,
                        DType dtype, cudaStream_t stream) {
  dispatch(name, dtype,
           [&]<class T>() { launch_elementwise_of<T, F>(name, a, b, y, count, stream); });
}

}  // namespace
}  // namespace warpstep::cuda

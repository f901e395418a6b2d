// Whether a step's gradients are finite, and their norm, in one pass over them: 2 bytes a gradient
// of 16 bits, 51 MB, 12 us for ResNet-50. Sums in a fixed order: of a thread, a block, and of all
// blocks by the last of them.
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;

// The bits of an element in the low half of a word of 4 bytes, and of one in the high half (an f32
// fills both), that are all set in infinities and NaNs alone.
template <class T>
struct Exponent;
template <>
struct Exponent<float> {
  static constexpr unsigned low = 0x7f800000U, high = low;
};
template <>
struct Exponent<__half> {
  static constexpr unsigned low = 0x7c00U, high = low << 16;
};
template <>
struct Exponent<__nv_bfloat16> {
  static constexpr unsigned low = 0x7f80U, high = low << 16;
};

template <class T>
__device__ inline bool not_finite(unsigned word) {
  constexpr unsigned low = Exponent<T>::low, high = Exponent<T>::high;
  return (word & low) == low || (word & high) == high;
}
template <class T>
__device__ inline bool not_finite(const uint4& v) {
  return not_finite<T>(v.x) || not_finite<T>(v.y) || not_finite<T>(v.z) || not_finite<T>(v.w);
}

constexpr unsigned vectors_a_thread = 4;

// What the step makes of the sum of the squares, and of an overflow in any block.
__device__ inline void settle_norm(double squares, float clip_norm, StepState& state) {
  if (atomicAdd(&state.overflow, 0U) != 0 || state.update == 0) return;
  const double norm = sqrt(squares) / static_cast<double>(state.loss_scale);
  state.gradient_norm = static_cast<float>(norm);
  if (!(clip_norm > 0)) return;
  const double factor = static_cast<double>(clip_norm) / (norm + 1e-6);
  if (factor < 1) state.gradient_factor *= static_cast<float>(factor);
}

// Squares are summed in double: those of f32 and bf16 overflow in float.
template <class T>
__global__ void __launch_bounds__(threads)
    check_gradients_kernel(const T* __restrict__ gradients, unsigned vectors, unsigned rest,
                           float clip_norm, StepState* state, double* sums, std::uint32_t* ticket) {
  constexpr int width = vector_width<T>;
  const unsigned first = blockIdx.x * (threads * vectors_a_thread) + threadIdx.x;
  Packed<T, width> packed[vectors_a_thread];  // 0, which is finite, behind the end
#pragma unroll
  for (unsigned j = 0; j < vectors_a_thread; ++j) {
    const unsigned v = first + j * threads;
    if (v < vectors) packed[j] = read<width>(gradients + std::size_t{v} * width);
  }
  bool found = false;
  double sum = 0;
#pragma unroll
  for (unsigned j = 0; j < vectors_a_thread; ++j) {
    found = found || not_finite<T>(packed[j].word);
    float g[width];
    unpack(packed[j], g);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  if (first < rest) {
    const float last = widen(gradients[std::size_t{vectors} * width + first]);
    found = found || !std::isfinite(last);
    sum += static_cast<double>(last) * static_cast<double>(last);
  }
  if (__any_sync(all_lanes, found) && threadIdx.x % warp_lanes == 0)
    atomicExch(&state->overflow, 1U);
  sum = block_reduce(sum, 0.0, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!last_block(ticket)) return;
  double total = 0;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += threads) total += sums[b];
  total = block_reduce(total, 0.0, Sum{});
  if (threadIdx.x == 0) settle_norm(total, clip_norm, *state);
}

unsigned vectors_of(std::int64_t count, DType dtype) {
  return index32("check_gradients", "vectors of 16 bytes",
                 count / static_cast<std::int64_t>(16 / size_bytes(dtype)));
}
unsigned blocks_of(unsigned vectors) {
  return blocks_for(vectors > 0 ? vectors : 1, threads * vectors_a_thread);
}

}  // namespace

std::size_t check_gradients_workspace(std::int64_t count, DType dtype) {
  return blocks_of(vectors_of(count, dtype)) * sizeof(double);
}

void check_gradients(const GradientBuffers& buffers, std::int64_t count, DType dtype,
                     double clip_norm, cudaStream_t stream) {
  dispatch("check_gradients", dtype, [&]<class T>() {
    if (count == 0) return;
    const unsigned vectors = vectors_of(count, dtype);
    launch("check_gradients", check_gradients_kernel<T>,
           {.grid = blocks_of(vectors), .block = threads, .stream = stream},
           static_cast<const T*>(buffers.gradients), vectors,
           static_cast<unsigned>(count % vector_width<T>), static_cast<float>(clip_norm),
           buffers.state, static_cast<double*>(buffers.workspace), buffers.ticket);
  });
}

}  // namespace warpstep::cuda

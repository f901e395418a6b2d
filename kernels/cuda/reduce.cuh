// Deterministic reductions: the order is fixed, whatever the schedule. A butterfly of a commutative
// operation leaves the same bits in every lane.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

inline constexpr int warp_lanes = 32;
inline constexpr unsigned all_lanes = 0xffffffffU;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {  // a NaN loses
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ int operator()(int a, int b) const { return a < b ? b : a; }
};

// Over each `group` adjacent lanes, a power of two; the whole warp calls it.
template <int group, class T, class Op>
__device__ inline T group_reduce(T value, Op op) {
#pragma unroll
  for (int distance = group / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(all_lanes, value, distance));
  return value;
}

// Over a one-dimensional block of whole warps, all of whose threads call it and get the result.
template <class T, class Op>
__device__ inline T block_reduce(T value, T identity, Op op) {
  __shared__ T of_warps[warp_lanes];
  const unsigned lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  value = group_reduce<warp_lanes>(value, op);
  __syncthreads();  // readers of an earlier call are done
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  const bool used = lane < blockDim.x / warp_lanes;
  return group_reduce<warp_lanes>(used ? of_warps[lane] : identity, op);
}

// True in all threads of the last of the `blocks` that share `ticket` to call this; that block then
// sees everything that the others wrote before. `ticket` is 0 before and after the launch. No block
// waits for another.
__device__ inline bool last_block(std::uint32_t* ticket, std::uint32_t blocks) {
  __shared__ bool last;
  __syncthreads();  // the block's writes come before the fence of its first thread
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
    __threadfence();
    last = atomicAdd(ticket, 1U) == blocks - 1;
    if (last) atomicExch(ticket, 0U);
    __threadfence();
  }
  __syncthreads();
  return last;
}

// The last block of the whole grid.
__device__ inline bool last_block(std::uint32_t* ticket) {
  return last_block(ticket, gridDim.x * gridDim.y * gridDim.z);
}

}  // namespace warpstep::cuda

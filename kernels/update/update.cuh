// Shared by the update kernels: one pass over flat sections of the store, one thread per four
// elements; the first few threads also handle the elements after the last whole vector.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {

inline constexpr unsigned update_threads = 256;
// Elements per thread: 16 bytes of f32, 8 bytes of 16-bit gradients.
inline constexpr int quad = 4;

// Whether the step updates: not while it only accumulates gradients, nor after an overflow.
__device__ inline bool updates(const StepState& state) {
  return state.overflow == 0 && state.update != 0;
}

// The launch for `count` elements: thread t < quads handles vector t, and thread t < rest one of
// the elements after them.
struct QuadExtent {
  QuadExtent(const char* kernel, std::int64_t count)
      : quads(index32(kernel, "vectors of 4 elements", count / quad)),
        rest(static_cast<unsigned>(count % quad)),
        blocks(blocks_for(quads > 0 ? quads : 1, update_threads)) {}
  unsigned quads, rest, blocks;
};

}  // namespace warpstep::cuda

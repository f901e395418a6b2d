// Launchers of the kernels that measure a step; see engine/graph/ops/statistics.h for what they
// compute. Each is one launch whose last block writes the sums, in an order that is fixed.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {

// Where the sums of a block go: row `block` of `blocks` in the place of the step in the ring,
// memory of the host that the device can write. BlockSums as its doubles: nvcc cannot compile fmt,
// which the ops include.
struct SumsPlace {
  double* ring = nullptr;
  const StepState* state = nullptr;
  std::int64_t block = 0, blocks = 0;
  void* workspace = nullptr;  // statistics_workspace bytes
  std::uint32_t* ticket = nullptr;
};
inline constexpr std::size_t statistics_workspace = 256 * 4 * sizeof(double);

// `count` elements of `dtype`, padding included: it is zero, and no sum counts it.
void activation_statistics(const void* x, std::int64_t count, DType dtype, const SumsPlace& to,
                           cudaStream_t stream);

// One parameter of `count` elements; `buffers.copy` is not used. `first`: the sums begin with it.
void update_statistics(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
                       DType gradients, bool first, const SumsPlace& to, cudaStream_t stream);

}  // namespace warpstep::cuda

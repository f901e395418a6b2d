// Launchers of the embeddings' CUDA kernels; engine/graph/ops/embed.h defines what they compute.
// Rows of the tables, of x and of d_x are stored with `channels` elements, a multiple of 16 bytes.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

struct EmbedShape {
  std::int64_t tokens = 0, sequence = 0;
  std::int64_t channels = 0;  // stored
};

// x [tokens][channels] of two tables' rows.
void embed(const EmbedShape& shape, const std::int32_t* tokens, const void* table,
           const void* positions, void* x, DType dtype, cudaStream_t stream);

struct EmbedGradBuffers {
  const void* d_x = nullptr;
  const std::int32_t *tokens = nullptr, *order = nullptr;
  void *d_table = nullptr, *d_positions = nullptr;
};
// Three launches: the runs of equal tokens in chunks of the sorted list, the runs that are in
// several chunks, the positions. The sums of tokens are added to d_table, which is ready: 0, or the
// gradient so far. Deterministic.
std::size_t embed_grad_workspace(const EmbedShape& shape);
void embed_grad(const EmbedShape& shape, const EmbedGradBuffers& buffers, DType dtype,
                void* workspace, cudaStream_t stream);

}  // namespace warpstep::cuda

// Launchers of the CUDA kernels of decoding; see engine/graph/ops/decode.h for what they compute.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

struct EmbedAtShape {
  std::int64_t tokens = 0, channels = 0, sequence = 0;
  std::int64_t table_row = 0, positions_row = 0;  // elements as stored
};
void embed_at(const EmbedAtShape& shape, const std::int32_t* tokens, const std::int32_t* position,
              const void* table, const void* positions, void* x, DType dtype, cudaStream_t stream);

struct CachedAttentionShape {
  std::int64_t sequences = 0, sequence = 0, positions = 0, heads = 0, features = 0;
  std::int64_t qkv_row = 0;  // elements as stored; o and the cache are plain
};
// One block per sequence and head. Throws DeviceError for more than 5,000 features of a head.
void cached_attention(const CachedAttentionShape& shape, const void* qkv, float* cache,
                      const std::int32_t* position, void* o, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

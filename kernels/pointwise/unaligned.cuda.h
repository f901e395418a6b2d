// bias_relu() and column_sums() for rows that are no multiple of 16 bytes, see pointwise.cuda.h: of
// convolutions in groups, whose channels are not padded.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

inline bool are_whole_vectors(std::int64_t channels, DType dtype) {
  return channels % static_cast<std::int64_t>(16 / size_bytes(dtype)) == 0;
}

void bias_relu_unaligned(void* y, const void* bias, bool relu, std::int64_t rows,
                         std::int64_t channels, DType dtype, cudaStream_t stream);
// Rows of x have `pitch` elements.
void column_sums_unaligned(const void* x, std::int64_t pitch, void* sums, std::int64_t rows,
                           std::int64_t channels, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

// bias_relu() and column_sums() for rows that are no multiple of 16 bytes, see pointwise.cuda.h.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

void bias_relu_unaligned(void* y, const void* bias, bool relu, std::int64_t rows,
                         std::int64_t channels, DType dtype, cudaStream_t stream);
void column_sums_unaligned(const void* x, void* sums, std::int64_t rows, std::int64_t channels,
                           DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

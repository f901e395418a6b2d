// Launchers of the GELU CUDA kernels; see engine/graph/ops/gelu.h for what they compute.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// `count` elements of `dtype`; addresses are aligned to 16 bytes, y may be x and d_x may be d_y.
void gelu(bool tanh, const void* x, void* y, std::int64_t count, DType dtype, cudaStream_t stream);
void gelu_grad(bool tanh, const void* d_y, const void* x, void* d_x, std::int64_t count,
               DType dtype, cudaStream_t stream);
// gelu_grad() over [rows, channels], and column_sums() of d_x with its workspace and tickets
// (kernels/pointwise/pointwise.cuda.h), in one launch.
void gelu_grad_sums(bool tanh, const void* d_y, const void* x, void* d_x, void* sums,
                    std::int64_t rows, std::int64_t channels, DType dtype, void* workspace,
                    std::uint32_t* tickets, cudaStream_t stream);

}  // namespace warpstep::cuda

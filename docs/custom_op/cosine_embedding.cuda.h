// Launchers of the CUDA kernels. x1, x2 and their gradients have `dtype`: f32, f16 or bf16.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"

namespace cuda {

struct CosineShape {
  std::int64_t rows = 0, columns = 0;
  float margin = 0;
  warpstep::DType dtype{};
};

// workspace: one float per row.
void cosine_embedding(const CosineShape& shape, const void* x1, const void* x2,
                      const std::int32_t* y, float* loss, float* workspace, cudaStream_t stream);
void cosine_embedding_grad(const CosineShape& shape, const void* x1, const void* x2,
                           const std::int32_t* y, const float* d_loss, void* d_x1, void* d_x2,
                           cudaStream_t stream);

}  // namespace cuda

// Launchers of batch norm with the max pool after it; engine/graph/ops/norm_pool.h defines the
// arithmetic. The pools are 3x3 with stride 2. Deterministic.
#pragma once

#include "kernels/norm/norm.cuda.h"
#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {

struct NormPoolBuffers {
  const void* x = nullptr;
  const float *gamma = nullptr, *beta = nullptr, *mean = nullptr, *inv_std = nullptr;  // [channels]
  void* y = nullptr;
  std::uint8_t* index = nullptr;
};

// The pool of the norm of x, from statistics of batch_norm_sum().
void norm_max_pool(const NormShape& norm, const PoolShape& pool, const NormPoolBuffers& buffers,
                   DType dtype, cudaStream_t stream);

struct NormPoolGradBuffers {
  const void* d_y = nullptr;
  const std::uint8_t* index = nullptr;
  const void* x = nullptr;
  const float *gamma = nullptr, *mean = nullptr, *inv_std = nullptr;  // [channels]
  void *d_x = nullptr, *d_gamma = nullptr, *d_beta = nullptr;         // all in d_y's dtype
};

// Two launches. `workspace` holds batch_norm_grad_workspace() bytes, and there are
// batch_norm_tickets() tickets.
void norm_max_pool_grad(const NormShape& norm, const PoolShape& pool,
                        const NormPoolGradBuffers& buffers, DType dtype, void* workspace,
                        std::uint32_t* tickets, cudaStream_t stream);

}  // namespace warpstep::cuda

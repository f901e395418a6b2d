// Launchers of the batch norm CUDA kernels, over rows of channels; engine/graph/ops/norm.h defines
// the arithmetic. Per-channel numbers are f32. `channels` counts the stored channels, a multiple of
// 16 bytes; where x, gamma and beta are zero in the padding channels, so are all results.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"
#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {

struct NormShape {
  std::int64_t rows = 0;      // pixels of all images
  std::int64_t channels = 0;  // stored
  std::int64_t real = 0;      // without padding; the extent of the running statistics
  bool relu = false;
  float epsilon = 1e-5F;
  double momentum = 0.1;
  std::int64_t ranks = 1;  // whose rows are normalised together
};

template <class Norm>  // BatchNorm
NormShape norm_shape(const Norm& op, const Shape& x, const Shape& stored) {
  return {.rows = x.count() / x.back(),
          .channels = stored.back(),
          .real = x.back(),
          .relu = op.relu,
          .epsilon = static_cast<float>(op.epsilon),
          .momentum = op.momentum,
          .ranks = op.training ? op.ranks : 1};
}

// The number of tickets: words that are 0 before and after each launch, one per column block.
std::size_t batch_norm_tickets(const NormShape& shape, DType dtype);

struct NormBuffers {
  const void* x = nullptr;
  const float *gamma = nullptr, *beta = nullptr;          // [channels]
  float *running_mean = nullptr, *running_var = nullptr;  // [real]
  const void* shortcut = nullptr;                         // of x's shape, or null
  void* y = nullptr;
  float *mean = nullptr, *inv_std = nullptr;  // [channels], in training
};

// Training, a launch each: the statistics (which also update the running ones), then y. Over
// several ranks the first one stops at the sums of `rank`; an exchange of what
// batch_norm_of_ranks() points to follows, of two floats a channel for each rank, in order, then
// the merge, which makes the statistics of all. Deterministic. `workspace` holds
// batch_norm_workspace() bytes.
std::size_t batch_norm_workspace(const NormShape& shape, DType dtype);
float* batch_norm_of_ranks(const NormShape& shape, DType dtype, void* workspace);
void batch_norm_sum(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                    void* workspace, std::uint32_t* tickets, int rank, cudaStream_t stream);
void batch_norm_merge(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                      void* workspace, cudaStream_t stream);
void batch_norm_apply(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                      cudaStream_t stream);
// y from the running statistics: one launch.
void batch_norm_inference(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                          cudaStream_t stream);

struct NormGradBuffers {
  const void *d_y = nullptr, *second = nullptr;  // d_y is the sum of both; second may be null
  const void *x = nullptr, *y = nullptr;         // y of a norm with a relu, else null
  const float *gamma = nullptr, *mean = nullptr, *inv_std = nullptr;  // [channels]
  void *d_x = nullptr, *d_gamma = nullptr, *d_beta = nullptr;         // all in d_y's dtype
  void* d_shortcut = nullptr;                                         // or null
  // Of the norm that made the shortcut, in one rank; without an x there is none. d_shortcut is then
  // the gradient of this x.
  struct {
    const void* x = nullptr;
    const float *gamma = nullptr, *mean = nullptr, *inv_std = nullptr;
    void *d_gamma = nullptr, *d_beta = nullptr;
  } shortcut = {};
};

// A launch each, as above: the sums with d_gamma, d_beta and d_shortcut, over several ranks the
// exchange and the merge, then d_x. Deterministic.
std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype,
                                      bool shortcut_norm = false);
void batch_norm_grad_sum(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                         void* workspace, std::uint32_t* tickets, int rank, cudaStream_t stream);
void batch_norm_grad_merge(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                           void* workspace, cudaStream_t stream);
void batch_norm_grad_finish(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                            void* workspace, cudaStream_t stream);

// With the max pool after it (engine/graph/ops/norm_pool.h), 3x3 with stride 2.

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

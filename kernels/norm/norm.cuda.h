// Launchers of the batch norms' CUDA kernels, over rows of channels; see engine/graph/ops/norm.h
// for what they compute. Everything of a channel is f32. Channels are those stored, a multiple of
// 16 bytes; where x, gamma and beta are zero beyond the real ones, so is all that is written.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

struct NormShape {
  std::int64_t rows = 0;      // pixels of all images
  std::int64_t channels = 0;  // stored
  std::int64_t real = 0;      // of these; the running statistics have no more
  bool relu = false;
  float epsilon = 1e-5F;
  double momentum = 0.1;
};

// Words that are 0 before and after each launch, one for each block of columns.
std::size_t batch_norm_tickets(const NormShape& shape, DType dtype);

struct NormBuffers {
  const void* x = nullptr;
  const float *gamma = nullptr, *beta = nullptr;          // [channels]
  float *running_mean = nullptr, *running_var = nullptr;  // [real]
  const void* shortcut = nullptr;                         // of x's shape, or null
  void* y = nullptr;
  float *mean = nullptr, *inv_std = nullptr;  // [channels], of training
};

// Two launches: statistics, which move the running ones, and y. The same bits every time.
// `workspace` holds batch_norm_workspace() bytes.
std::size_t batch_norm_workspace(const NormShape& shape, DType dtype);
void batch_norm(const NormShape& shape, const NormBuffers& buffers, DType dtype, void* workspace,
                std::uint32_t* tickets, cudaStream_t stream);
// The second of the two alone: y from the mean and inv_std that are there.
void batch_norm_apply(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                      cudaStream_t stream);
// y from the running statistics: one launch.
void batch_norm_inference(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                          cudaStream_t stream);

struct NormGradBuffers {
  const void *d_y = nullptr, *second = nullptr;  // the second d_y, or null
  const void *x = nullptr, *y = nullptr;         // y of a norm with a relu, else null
  const float *gamma = nullptr, *mean = nullptr, *inv_std = nullptr;  // [channels]
  void *d_x = nullptr, *d_gamma = nullptr, *d_beta = nullptr;         // all in d_y's dtype
  void* d_shortcut = nullptr;                                         // or null
};

// Two launches: the sums, with d_gamma, d_beta and d_shortcut, and d_x. The same bits every time.
std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype);
void batch_norm_grad(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                     void* workspace, std::uint32_t* tickets, cudaStream_t stream);

}  // namespace warpstep::cuda

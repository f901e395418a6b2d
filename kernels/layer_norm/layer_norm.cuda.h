// Launchers of the layer norm CUDA kernels; engine/graph/ops/layer_norm.h defines the arithmetic.
// Rows are stored with `channels` elements, a multiple of 16 bytes, of which `real` are not
// padding; where x, the shortcut, gamma and beta are zero in the padding, so are all results.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

struct LayerNormShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;  // stored
  std::int64_t real = 0;      // without padding
  float epsilon = 1e-5F;
};

struct LayerNormBuffers {
  const void *x = nullptr, *shortcut = nullptr;   // [rows][channels]; the latter may be null
  const float *gamma = nullptr, *beta = nullptr;  // [channels]; beta may be null
  void *y = nullptr, *sum = nullptr;              // like x; sum with a shortcut
  float *mean = nullptr, *inv_std = nullptr;      // [rows]
};
void layer_norm(const LayerNormShape& shape, const LayerNormBuffers& buffers, DType dtype,
                cudaStream_t stream);

struct LayerNormGradBuffers {
  const void *d_y = nullptr, *s = nullptr, *second = nullptr;  // second may be null
  const float* gamma = nullptr;                                // [channels]
  const float *mean = nullptr, *inv_std = nullptr;             // [rows]
  void* d_s = nullptr;                                         // may be d_y
  // [channels] in d_y's dtype; d_beta and the sum of d_s over the rows may be null.
  void *d_gamma = nullptr, *d_beta = nullptr, *d_s_sums = nullptr;
};
// Two launches: d_s with partial sums in the workspace, which has room for so many results, then
// the results. Deterministic.
std::size_t layer_norm_grad_workspace(const LayerNormShape& shape, int results, DType dtype);
void layer_norm_grad(const LayerNormShape& shape, const LayerNormGradBuffers& buffers, DType dtype,
                     void* workspace, cudaStream_t stream);

}  // namespace warpstep::cuda

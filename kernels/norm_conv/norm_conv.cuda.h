// Launchers of the kernels between the convolutions of fused norms; engine/graph/ops/norm_conv.h
// defines the arithmetic. Channels are a multiple of 16 bytes and have no padding.
#pragma once

#include <driver_types.h>

#include "kernels/norm/norm.cuda.h"

namespace warpstep::cuda {

struct NormFinalizeBuffers {
  const float *sum = nullptr, *squares = nullptr, *gamma = nullptr, *beta = nullptr;
  float *running_mean = nullptr, *running_var = nullptr;
  float *mean = nullptr, *inv_std = nullptr;
  void *scale = nullptr, *bias = nullptr;  // of `dtype`
};
// One launch with one thread per channel.
void norm_finalize(const NormShape& shape, const NormFinalizeBuffers& buffers, DType dtype,
                   cudaStream_t stream);

struct NormGradApplyBuffers {
  const void *g = nullptr, *x = nullptr;
  const float *d_gamma = nullptr, *d_beta = nullptr;
  const float *by_g = nullptr, *by_x = nullptr, *constant = nullptr;
  void* d_x = nullptr;                                       // may be g
  void *narrow_d_gamma = nullptr, *narrow_d_beta = nullptr;  // all in g's dtype
};
// One launch.
void norm_grad_apply(const NormShape& shape, const NormGradApplyBuffers& buffers, DType dtype,
                     cudaStream_t stream);

}  // namespace warpstep::cuda

// Launchers of the average-pooling CUDA kernels, over NHWC images; see engine/ops/pool.h for what
// they compute. Channels are those stored: a multiple of 16 bytes. Of PoolShape, `relu` means
// nothing here, and a window of 0 is the whole image.
#pragma once

#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {

// Sums in f32 in a fixed order: the same bits every time.
void avg_pool(const PoolShape& shape, const void* x, void* y, DType dtype, cudaStream_t stream);
// Every element of d_x is written; where windows overlap it is the sum of theirs, in order.
void avg_pool_grad(const PoolShape& shape, const void* d_y, void* d_x, DType dtype,
                   cudaStream_t stream);

}  // namespace warpstep::cuda

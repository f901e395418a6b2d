// 3x3 convolutions of few channels in 16 bits, and their adjoints, as kernels of our own. cuDNN's
// engines are made for many channels: with 8 or 32 of them most of a tile is padding. See
// narrow.cuda.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// Stride 1 and padding 1: x [images,height,width,in], w [out,3,3,in], y [images,height,width,out],
// with the channels as they are stored.
struct NarrowConv {
  std::int64_t images = 0, height = 0, width = 0, in = 0, out = 0;
  double flops() const { return 18.0 * static_cast<double>(images * height * width * in * out); }
};

// Whether there are kernels for it: both for the convolution and its gradient to x, up to 8 to 32
// or 16 to 16 channels; for that of the weights.
bool has_narrow_product(const NarrowConv& conv);
bool has_narrow_weight_grad(const NarrowConv& conv);

// y = max(0, x * w + bias), without the maximum unless `relu`, without a bias if it is null. All
// are of `dtype`, f16 or bf16; sums are f32.
void narrow_forward(const NarrowConv& conv, const void* x, const void* w, const void* bias,
                    bool relu, void* y, DType dtype, cudaStream_t stream);
void narrow_data_grad(const NarrowConv& conv, const void* d_y, const void* w, void* d_x,
                      DType dtype, cudaStream_t stream);

// d_w, by partial sums of blocks in the workspace, which a second kernel adds in order.
std::size_t narrow_weight_grad_workspace(const NarrowConv& conv, int multiprocessors);
void narrow_weight_grad(const NarrowConv& conv, const void* x, const void* d_y, void* d_w,
                        void* workspace, int multiprocessors, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

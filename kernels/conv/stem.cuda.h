// The first convolution of residual networks, 7x7 of images of up to 4 channels in 16 bits, and the
// gradient of its weights, as kernels of our own. cuDNN's engines compute the 5 channels of padding
// as well. See stem.cuda.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// Stride 2 and padding 3: x [images,height,width,8], of whose channels the last 4 are padding,
// w [out,7,7,8], y [images,out_height,out_width,out], with `out` as it is stored.
struct StemConv {
  std::int64_t images = 0, height = 0, width = 0, out = 0;
  std::int64_t out_height() const { return (height - 1) / 2 + 1; }
  std::int64_t out_width() const { return (width - 1) / 2 + 1; }
};

// Whether there are kernels for it: of more than 32 and up to 64 outputs.
bool has_stem(const StemConv& conv);

// y = max(0, x * w + bias), without the maximum unless `relu`, without a bias if it is null. All
// are of `dtype`, f16 or bf16; sums are f32. Multiprocessors are those of the device. An infinity
// in x also gives NaN in the window whose last column is one to the left of it.
void stem_forward(const StemConv& conv, const void* x, const void* w, const void* bias, bool relu,
                  void* y, int multiprocessors, DType dtype, cudaStream_t stream);

// d_w, by partial sums of blocks in the workspace, which a second kernel adds in order.
std::size_t stem_weight_grad_workspace(const StemConv& conv, int multiprocessors);  // bytes
void stem_weight_grad(const StemConv& conv, const void* x, const void* d_y, void* d_w,
                      void* workspace, int multiprocessors, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

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
// with the channels as they are stored. With a pool of 2x2 windows after it (MaxPool), y and the
// index of its maxima are [images,height/2,width/2,out], and so is d_y.
struct NarrowConv {
  std::int64_t images = 0, height = 0, width = 0, in = 0, out = 0;
  bool pooled = false, pool_relu = false;
  double flops() const { return 18.0 * static_cast<double>(images * height * width * in * out); }
};

// Channels read times channels written: of more, products without a pool are cuDNN's.
inline constexpr std::int64_t few_products = 8 * 32;

// Whether there are kernels: 8, 16, 32, 64 or 128 channels in and out, width up to 128; with a pool
// at least 16 out. The first is for the convolution and its data gradient, without a pool of
// few_products.
bool has_narrow_product(const NarrowConv& conv);
bool has_narrow_weight_grad(const NarrowConv& conv);

// Operands that a convolution lacks are null. All are of one dtype, f16 or bf16, but for the index;
// sums are f32.
struct NarrowOperands {
  const void *x = nullptr, *w = nullptr, *bias = nullptr;
  void* y = nullptr;
  std::uint8_t* y_index = nullptr;          // of a pool: written,
  const std::uint8_t* d_y_index = nullptr;  // and read by the adjoints
  const void *d_y = nullptr, *mask = nullptr;
  void *d_x = nullptr, *d_w = nullptr, *d_bias = nullptr;
};

// y = max(0, x * w + bias), without the maximum unless `relu`.
void narrow_forward(const NarrowConv& conv, const NarrowOperands& operands, bool relu,
                    int multiprocessors, DType dtype, cudaStream_t stream);
// With a mask d_x is 0 where that is not above 0: x, to get the gradient of what a relu read.
void narrow_data_grad(const NarrowConv& conv, const NarrowOperands& operands, int multiprocessors,
                      DType dtype, cudaStream_t stream);

// d_w and d_bias, by partial sums of blocks in the workspace, which a second kernel adds in order.
std::size_t narrow_weight_grad_workspace(const NarrowConv& conv, int multiprocessors);
void narrow_weight_grad(const NarrowConv& conv, const NarrowOperands& operands, void* workspace,
                        int multiprocessors, DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

// The adjoints of 3x3 convolutions over eight input channels, rows of channels on both sides.
// oneDNN fills half a vector register there (40 to 48 GFLOP/s where 100 are to be had); these loops
// fill all of it.
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

// Convolutions as products of matrices that hold, for each pixel of the output, the pixels of the
// input that its window covers (im2col): for any shape on any CPU. For what oneDNN has no kernel,
// which depends on the CPU: a backend takes every shape. Rows of channels (nhwc) and plain weights
// on all sides.

std::unique_ptr<Kernel> im2col_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> im2col_data_grad(const Conv& op, const Shape& x, const Shape& z);
// Gives d_bias too where the convolution has one.
std::unique_ptr<Kernel> im2col_weight_grad(const Conv& op, const Shape& x, const Shape& z);

// Convolutions over images of a few pixels, as the last stages of a ResNet have them for small
// images, as matrix products. oneDNN's convolutions work on rows of pixels there are not: a product
// is 2 to 13 times faster (1x1 and 2x2 pixels, batch 128).

// One group, no bias, plain layouts, and at most four pixels in and out.
bool takes_small_maps(const Conv& op, const Value& x, const Value& z);
// The same of shapes alone: whether it would with plain layouts.
bool suits_small_maps(const Conv& op, const Shape& x, const Shape& z);

std::unique_ptr<Kernel> small_map_conv(const dnnl::engine& engine, const Conv& op, const Shape& x,
                                       const Shape& z);
std::unique_ptr<Kernel> small_map_data_grad(const dnnl::engine& engine, const Conv& op,
                                            const Shape& x, const Shape& z);
std::unique_ptr<Kernel> small_map_weight_grad(const dnnl::engine& engine, const Conv& op,
                                              const Shape& x, const Shape& z);

// Kernel 3, stride 1, padding 1, 8 input channels, a multiple of 16 output channels, plain layouts,
// AVX2 with FMA.
bool takes_eight_channels(const Conv& op, const Value& x, const Value& z);

struct EightChannels {
  std::int64_t images, height, width, out;
};

// d_x [N,H,W,8] from d_z [N,H,W,out] and weight [out,3,3,8].
std::unique_ptr<Kernel> eight_channels_data_grad(const EightChannels& shape);
// d_weight [out,3,3,8], and d_bias [out] if asked for, from x and d_z.
std::unique_ptr<Kernel> eight_channels_weight_grad(const EightChannels& shape, bool bias);

}  // namespace warpstep::cpu

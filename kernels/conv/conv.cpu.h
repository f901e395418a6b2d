// The CPU's own convolutions, for shapes where oneDNN has no kernel or a slow one. All of them work
// on rows of channels (nhwc) and plain weights:
//   im2col          any shape on any CPU: products of matrices that contain, for each pixel of the
//                   output, the pixels of the input in its window. Used where oneDNN has no kernel
//   small maps      images of at most four pixels, as in the last stages of a ResNet for small
//                   images, as one matrix product. oneDNN's convolutions work on rows of pixels,
//                   which are too short here: a product is 2 to 13 times faster (1x1 and 2x2
//                   pixels, batch 128)
//   eight channels  the adjoints of 3x3 convolutions over eight input channels: oneDNN fills half a
//                   vector register there (40 to 48 of 100 GFLOP/s); these loops fill all of it
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> im2col_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> im2col_data_grad(const Conv& op, const Shape& x, const Shape& z);
// Also computes d_bias if the convolution has a bias.
std::unique_ptr<Kernel> im2col_weight_grad(const Conv& op, const Shape& x, const Shape& z);

// True for one group, no bias, plain layouts, and at most four pixels in and out.
bool takes_small_maps(const Conv& op, const Value& x, const Value& z);
// The same from the shapes only: whether it would be true with plain layouts.
bool suits_small_maps(const Conv& op, const Shape& x, const Shape& z);

std::unique_ptr<Kernel> small_map_conv(const dnnl::engine& engine, const Conv& op, const Shape& x,
                                       const Shape& z);
std::unique_ptr<Kernel> small_map_data_grad(const dnnl::engine& engine, const Conv& op,
                                            const Shape& x, const Shape& z);
std::unique_ptr<Kernel> small_map_weight_grad(const dnnl::engine& engine, const Conv& op,
                                              const Shape& x, const Shape& z);

// True for kernel 3, stride 1, padding 1, 8 input channels, a multiple of 16 output channels (32
// with AVX-512) and plain layouts, on a CPU with AVX2 and FMA.
bool takes_eight_channels(const Conv& op, const Value& x, const Value& z);

struct EightChannels {
  std::int64_t images, height, width, out;
};

// d_x [N,H,W,8] from d_z [N,H,W,out] and weight [out,3,3,8].
std::unique_ptr<Kernel> eight_channels_data_grad(const EightChannels& shape);
// d_weight [out,3,3,8], and with `bias` d_bias [out], from x and d_z.
std::unique_ptr<Kernel> eight_channels_weight_grad(const EightChannels& shape, bool bias);

}  // namespace warpstep::cpu

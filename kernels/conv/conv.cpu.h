// The CPU's kernels of convolutions and of their adjoints, over rows of channels (nhwc) and plain
// weights. A weight gradient also computes d_bias if the convolution has a bias.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::cpu {

// narrow.cpu.cpp: images of few channels, forward and weight gradient.

// True for fewer than 8 channels, one group, no dilation and a kernel of at most 11.
bool suits_narrow(const Conv& op, const Shape& x);

// Of images and weights in f32 or bf16; all arithmetic is in f32.
std::unique_ptr<Kernel> narrow_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype);
std::unique_ptr<Kernel> narrow_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                           DType dtype);

// winograd.cpu.cpp: F(4x4, 3x3), and images of 2x2 pixels.

// True for kernel 3, one group, and stride 1 with padding at most 2 and at least 8 channels on both
// sides (images of 2x2 pixels with padding 1: in f32, no pool, at least 16), or in f32 stride 2
// with padding 1, no pool and at least 16 channels, if there are enough tiles of outputs for this
// to be faster than a direct convolution. Never in bf16 on AMX, whose products are sixteen times as
// fast as Winograd's, which are f32.
bool suits_winograd(const Conv& op, const Shape& x, const Shape& z, DType dtype,
                    bool weight_gradient);

// Whether these kernels also compute the pool of a convolution that suits them: windows of 2x2 that
// do not overlap, behind a padding of 1.
bool pools_in_winograd(const Conv& op);

// Likewise in f32 or bf16.
std::unique_ptr<Kernel> winograd_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype);
std::unique_ptr<Kernel> winograd_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                           DType dtype);
std::unique_ptr<Kernel> winograd_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                             DType dtype);

// depthwise.cpu.cpp: each channel by itself, or with few others.

// True for as many groups and outputs as channels, of which there are at least 4. In f32, with
// vectors of 8 or more, also for groups of 2, 4 or 8 channels and as many outputs.
bool suits_depthwise(const Conv& op, const Shape& x, DType dtype);

// In f32 or bf16; sums are floats.
std::unique_ptr<Kernel> depthwise_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype);
std::unique_ptr<Kernel> depthwise_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                            DType dtype);
std::unique_ptr<Kernel> depthwise_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                              DType dtype);

// joined.cpu.cpp: several groups at once.

// How many groups of these channels to join; 1 for none.
std::int64_t joined_groups(const Conv& op, const Shape& x);

// The kernel of a convolution or of an adjoint, by `kernel` of the one with op.groups / groups
// groups. gradient: of the weights. In f32 or bf16.
std::unique_ptr<Kernel> joined_kernel(const Conv& op, const Shape& x, DType dtype, bool gradient,
                                      std::int64_t groups, std::unique_ptr<Kernel> kernel);

// scattered.cpu.cpp: f32 towards few channels, where Winograd's kernels do not suit.

// True for stride 1, one group, and at most 8 outputs, of at least as many channels.
bool suits_scattered(const Conv& op, const Type& x);
// True for one group, any stride, and at most 8 channels, with at least as many outputs.
bool suits_scattered_grad(const Conv& op, const Type& x);

std::unique_ptr<Kernel> scattered_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> scattered_data_grad(const Conv& op, const Shape& x, const Shape& z);

// products.cpu.cpp: matrix products over windows, for every shape, in f32 or bf16.

std::unique_ptr<Kernel> product_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype);
std::unique_ptr<Kernel> product_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                          DType dtype);
std::unique_ptr<Kernel> product_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                            DType dtype);

}  // namespace warpstep::cpu

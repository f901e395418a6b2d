// Winograd's convolution F(4x4, 3x3) and its adjoints over rows of channels: see winograd.cpu.cpp.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::cpu {

// True for kernel 3, stride 1, padding at most 2, one group and at least 8 channels on both sides,
// if there are enough tiles of 4x4 outputs for this to be faster than a direct convolution.
bool suits_winograd(const Conv& op, const Shape& x, const Shape& z);

// Whether these kernels also compute the pool of a convolution that suits them: windows of 2x2 that
// do not overlap, behind a padding of 1.
bool pools_in_winograd(const Conv& op);

std::unique_ptr<Kernel> winograd_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> winograd_data_grad(const Conv& op, const Shape& x, const Shape& z);
// Also computes d_bias if the convolution has a bias.
std::unique_ptr<Kernel> winograd_weight_grad(const Conv& op, const Shape& x, const Shape& z);

}  // namespace warpstep::cpu

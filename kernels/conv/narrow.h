// Convolutions over images of few channels, and their weight gradients: see narrow.cpu.cpp.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::cpu {

// True for fewer than 8 channels, one group, no dilation and a kernel of at most 11.
bool suits_narrow(const Conv& op, const Shape& x);

std::unique_ptr<Kernel> narrow_conv(const Conv& op, const Shape& x, const Shape& z);
// Also computes d_bias if the convolution has a bias.
std::unique_ptr<Kernel> narrow_weight_grad(const Conv& op, const Shape& x, const Shape& z);

}  // namespace warpstep::cpu

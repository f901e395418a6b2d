// Convolutions and their adjoints as matrix products over windows, for every shape: see
// products.cpu.cpp. All images are rows of channels.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> product_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> product_data_grad(const Conv& op, const Shape& x, const Shape& z);
// Also computes d_bias if the convolution has a bias.
std::unique_ptr<Kernel> product_weight_grad(const Conv& op, const Shape& x, const Shape& z);

}  // namespace warpstep::cpu

// Convolutions as products of matrices that hold, for each pixel of the output, the pixels of the
// input that its window covers (im2col): for any shape on any CPU. For what oneDNN has no kernel,
// which depends on the CPU: a backend takes every shape. Rows of channels (nhwc) and plain weights
// on all sides.
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

std::unique_ptr<Kernel> im2col_conv(const Conv& op, const Shape& x, const Shape& z);
std::unique_ptr<Kernel> im2col_data_grad(const Conv& op, const Shape& x, const Shape& z);
// Gives d_bias too where the convolution has one.
std::unique_ptr<Kernel> im2col_weight_grad(const Conv& op, const Shape& x, const Shape& z);

}  // namespace warpstep::cpu

// Batch norm in double, for all reference kernels that contain it.
#pragma once

#include "kernels/ref/ref.h"

namespace warpstep::ref {

// Of images of shape x, with the operands and results of the op.
void normalise(const BatchNorm& op, const Shape& x, const Buffers& b);
void norm_gradients(const BatchNormGrad& op, const Shape& x, const Buffers& b);

}  // namespace warpstep::ref

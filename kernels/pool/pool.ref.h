// Max pooling as plain loops in double, for all reference kernels that contain it.
#pragma once

#include "kernels/ref/ref.h"

namespace warpstep::ref {

void pool_maxima(const MaxPool& op, const Shape& x, const Shape& y, const double* in, double* out,
                 std::uint8_t* index);
// The adjoint: d_x, all of it.
void spread_to_maxima(const MaxPool& op, const Shape& x, const Shape& y, const double* d_y,
                      const std::uint8_t* index, double* d_x);

}  // namespace warpstep::ref

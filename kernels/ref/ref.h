// The reference backend: plain loops in double precision without libraries, against which every
// other backend is tested. Floating-point values of any dtype are stored as double, in rows of the
// logical shape; u8 and i32 are stored unchanged.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::ref {

// A relu: NaN stays NaN, and -0 becomes 0, on every backend.
constexpr double rectified(double x) {
  return x <= 0 ? 0 : x;
}

// sums [channels] of x [count / channels, channels] over its rows.
void column_sums(const double* x, std::int64_t count, std::int64_t channels, double* sums);

// GELU at x and its slope there; in kernels/gelu/gelu.ref.cpp.
struct GeluAt {
  double y, slope;
};
GeluAt gelu_at(double x, bool tanh);

// bind() of every op, defined in kernels/*/*.ref.cpp.
WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND)

}  // namespace warpstep::ref

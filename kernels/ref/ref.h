// The reference backend: plain loops in double precision without a library, the truth that every
// other backend is tested against. Floating-point values of any dtype are stored as double, rows of
// the logical shape; u8 and i32 as they are.
#pragma once

#include "kernels/kernel.h"

namespace warpstep::ref {

// sums [channels] of x over rows of so many channels.
void column_sums(const double* x, std::int64_t count, std::int64_t channels, double* sums);

// bind() of every op, defined in kernels/*/*.ref.cpp.
WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND)

}  // namespace warpstep::ref

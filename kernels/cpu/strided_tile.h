// The arguments of the products in vectors.inc, which includes nothing itself.
#pragma once

#include <cstdint>

#include "kernels/cpu/stored.h"

namespace warpstep::cpu {

// c(i, j) = c[i * c_row + j], b(k, j) = b[k * b_depth + j], and a as `multiply_tile` says.
struct StridedTile {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_depth;
  float* c;
  std::int64_t c_row, depth;
  bool accumulate;
  bool c_is_far = false;  // from the core: asks for c's rows before they are added to
};

}  // namespace warpstep::cpu

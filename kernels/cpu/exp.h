// The exponential of vector loops: the library's has no vector form without -ffast-math.
#pragma once

#include <bit>

#include "kernels/cpu/team.h"

namespace warpstep::cpu {

// exp(x) within 2 units in the last place for |x| <= 87, beyond that of 87; NaN stays NaN. x is
// split into n ln 2 + r with |r| <= ln(2) / 2, and exp(r) is its Taylor series to r^7 (error r^8 /
// 8!: 5e-9).
WARPSTEP_LOOP float exp_within_range(float x) {
  x = x < -87.0F ? -87.0F : x > 87.0F ? 87.0F : x;
  constexpr float round = 12582912;  // 1.5 * 2^23: adding it leaves n in the lowest bits
  const float shifted = x * 1.44269504F + round, n = shifted - round;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1;
  p = p * r + 1;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + (127U << 23));
}

}  // namespace warpstep::cpu

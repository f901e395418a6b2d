// How far the results of two backends may be apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "engine/core/types.h"

namespace warpstep::testing_support {

// The largest acceptable difference of a result, relative to its root mean square: 4 eps
// sqrt(depth), as rounding errors of `depth` additions in `dtype` grow; one constant for all ops.
inline double tolerance(DType dtype, double depth) {
  return 4 * epsilon(dtype) * std::sqrt(std::max(1.0, depth));
}

// Root mean square of a - b over the root mean square of b; 0 where both are zero, infinite where a
// is not finite.
inline double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  if (difference == 0) return 0;
  return size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / size);
}

}  // namespace warpstep::testing_support

// The extents of a cached attention, and where the rows of its caches lie.
#pragma once

#include <cmath>

#include "kernels/kernel.h"

namespace warpstep {

struct CachedRows {
  std::int64_t count, length, positions, heads, features;  // N, T, P, heads, D

  CachedRows(const CachedAttention& op, const Shape& qkv, const Shape& cache)
      : count(qkv[0]),
        length(op.sequence),
        positions(cache[1]),
        heads(op.heads),
        features(qkv[1] / 3 / op.heads) {}

  std::int64_t channels() const { return heads * features; }
  std::int64_t row() const { return 2 * channels(); }  // keys, values
  double scale() const { return 1 / std::sqrt(static_cast<double>(features)); }

  // Where the cache of row n's sequence begins, and n's own row in it.
  std::int64_t sequence_offset(std::int64_t n) const { return n / length * positions * row(); }
  std::int64_t offset(std::int64_t n, std::int64_t position) const {
    return sequence_offset(n) + (position + n % length) * row();
  }
};

}  // namespace warpstep

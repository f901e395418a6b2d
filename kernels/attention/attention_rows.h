// The extents of an attention, and where its heads lie in rows of logical width.
#pragma once

#include <cmath>

#include "kernels/kernel.h"

namespace warpstep {

struct AttentionRows {
  std::int64_t sequences, heads, length, features;  // N / T, heads, T, D
  bool causal;

  AttentionRows(const Attention& op, const Shape& qkv)
      : sequences(qkv[0] / op.sequence),
        heads(op.heads),
        length(op.sequence),
        features(qkv[1] / 3 / op.heads),
        causal(op.causal) {}

  std::int64_t channels() const { return heads * features; }
  std::int64_t tasks() const { return sequences * heads; }          // numbered sequence by sequence
  std::int64_t pairs() const { return tasks() * length * length; }  // with those not seen
  // Positions that position i sees: these are the first ones.
  std::int64_t visible(std::int64_t i) const { return causal ? i + 1 : length; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(features)); }

  // Where head `task` begins in rows of `parts` times C elements: at its queries in qkv (3 parts),
  // from which its keys and values are channels() and 2 channels() away, or in o (1 part).
  std::int64_t offset(std::int64_t task, std::int64_t parts) const {
    return task / heads * length * parts * channels() + task % heads * features;
  }
};

}  // namespace warpstep

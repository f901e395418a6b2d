// What a row's loss is taken of: its label and, in a mixed row, its pair's. For the host's kernels.
#pragma once

#include <cstdint>

#include "engine/core/pixels.h"

namespace warpstep {

// `label` below 0: a row of padding. The loss is weight times that of `label` and rest times that
// of `pair`, which is -1 in a row that is not mixed.
struct Targets {
  std::int32_t label = -1, pair = -1;
  float weight = 1, rest = 0;
};

// Of row n; `rows` is null where no row is mixed.
inline Targets targets_of(const std::int32_t* labels, const RowPlan* rows, std::int64_t n) {
  Targets t{.label = labels[n]};
  if (rows == nullptr || t.label < 0 || !(rows[n].weight < 1) || rows[n].pair_label < 0) return t;
  t.pair = rows[n].pair_label;
  t.weight = rows[n].weight;
  t.rest = 1 - t.weight;
  return t;
}

}  // namespace warpstep

// What a row's loss is taken of, as kernels/loss/targets.h has it for the host.
#pragma once

#include "engine/core/pixels.h"
#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

struct Targets {
  int label, pair;  // label below 0: padding; pair below 0: not mixed
  float weight, rest;
};

__device__ inline Targets targets_of(const std::int32_t* labels, const RowPlan* rows,
                                     unsigned row) {
  Targets t{labels[row], -1, 1, 0};
  if (rows == nullptr || t.label < 0) return t;
  const float weight = rows[row].weight;
  const int pair = rows[row].pair_label;
  if (weight < 1 && pair >= 0) t = {t.label, pair, weight, 1 - weight};
  return t;
}

}  // namespace warpstep::cuda

// The targets of a row's loss on the device; kernels/loss/targets.h is the same for the host.
#pragma once

#include "engine/core/pixels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/loss/loss.cuda.h"

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

__device__ inline float weight_of(const Criterion& criterion, int k) {
  return criterion.weights != nullptr ? criterion.weights[k] : 1;
}

// The weight of a row: that of its labels.
__device__ inline float weight_of(const Criterion& criterion, const Targets& t) {
  const float first = t.weight * weight_of(criterion, t.label);
  return t.pair < 0 ? first : first + t.rest * weight_of(criterion, t.pair);
}

// The target of class k: the factor of -log p.
__device__ inline float wanted(const Criterion& criterion, const Targets& t, int k, int classes) {
  const float share = (k == t.label ? t.weight : 0) + (k == t.pair ? t.rest : 0);
  const float smooth = criterion.smoothing / static_cast<float>(classes);
  return weight_of(criterion, k) * ((1 - criterion.smoothing) * share + smooth);
}

// The sum of the labels' weights, the divisor of the mean; all threads of the block get it.
__device__ inline float label_weights(const Criterion& criterion, const std::int32_t* labels,
                                      const RowPlan* plans, unsigned rows) {
  float sum = 0;
  for (unsigned row = threadIdx.x; row < rows; row += blockDim.x)
    if (labels[row] >= 0) sum += weight_of(criterion, targets_of(labels, plans, row));
  return block_reduce(sum, 0.0F, Sum{});
}

}  // namespace warpstep::cuda

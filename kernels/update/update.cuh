// Shared by the update kernels: one pass over flat sections of the store, one thread per four
// elements; the first few threads also handle the elements after the last whole vector.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {

inline constexpr unsigned update_threads = 256;
// Elements per thread: 16 bytes of f32, 8 bytes of 16-bit gradients.
inline constexpr int quad = 4;

// Whether the step updates: not while it only accumulates gradients, nor after an overflow.
__device__ inline bool updates(const StepState& state) {
  return state.overflow == 0 && state.update != 0;
}

// The launch for `count` elements: thread t < quads handles vector t, and thread t < rest one of
// the elements after them.
struct QuadExtent {
  QuadExtent(const char* kernel, std::int64_t count)
      : quads(index32(kernel, "vectors of 4 elements", count / quad)),
        rest(static_cast<unsigned>(count % quad)),
        blocks(blocks_for(quads > 0 ? quads : 1, update_threads)) {}
  unsigned quads, rest, blocks;
};

// The coefficients that change from step to step; each thread computes them in a few instructions.
struct Coefficients {
  float factor, rate, keep, root_scale;
};

__device__ inline Coefficients coefficients(const UpdateRule& rule, const StepState& state) {
  const float rate = state.learning_rate;
  const float factor = state.gradient_factor;
  if (rule.kind != UpdateRule::Kind::adam) return {factor, rate, 1, 1};
  return {factor, rate / state.bias_correction1, 1 - rate * rule.decoupled_decay,
          1 / sqrtf(state.bias_correction2)};
}

// PyTorch's formulas in f32: p is the parameter, g its gradient, m and v its moments.
template <UpdateRule::Kind kind>
__device__ inline void step(const UpdateRule& rule, const Coefficients& now, float& p, float g,
                            float& m, float& v) {
  using Kind = UpdateRule::Kind;
  g = g * now.factor + rule.decay * p;
  if constexpr (kind == Kind::sgd) {
    p -= now.rate * g;
  } else if constexpr (kind == Kind::adam) {
    m += rule.one_minus_beta1 * (g - m);
    v = rule.beta2 * v + rule.one_minus_beta2 * (g * g);
    p = now.keep * p - now.rate * m / (sqrtf(v) * now.root_scale + rule.epsilon);
  } else if constexpr (kind == Kind::rmsprop || kind == Kind::rmsprop_momentum) {
    m = rule.beta2 * m + rule.one_minus_beta2 * (g * g);  // the mean square is the first moment
    float change = g / (sqrtf(m) + rule.epsilon);
    if constexpr (kind == Kind::rmsprop_momentum) change = v = rule.momentum * v + change;
    p -= now.rate * change;
  } else {
    m = rule.momentum * m + g;
    p -= now.rate * (kind == Kind::nesterov ? g + rule.momentum * m : m);
  }
}

}  // namespace warpstep::cuda

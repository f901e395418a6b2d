// The optimisers' rules as vector loops.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {

struct AdamFactors {
  float factor, decay, keep, one_minus_beta1, beta2, one_minus_beta2, root_scale, rate, epsilon;
};

inline AdamFactors adam_factors(const Optimizer& o, const StepState& state) {
  const double rate = static_cast<double>(state.learning_rate);
  const bool decoupled = o.kind == Optimizer::Kind::adamw;
  return {
      .factor = state.gradient_factor,
      .decay = static_cast<float>(decoupled ? 0 : o.weight_decay),
      .keep = static_cast<float>(decoupled ? 1 - rate * o.weight_decay : 1),
      .one_minus_beta1 = static_cast<float>(1 - o.beta1),
      .beta2 = static_cast<float>(o.beta2),
      .one_minus_beta2 = static_cast<float>(1 - o.beta2),
      .root_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(state.bias_correction2))),
      .rate = static_cast<float>(rate / static_cast<double>(state.bias_correction1)),
      .epsilon = static_cast<float>(o.epsilon)};
}

// Square roots and divisions fill the window in which a core would find these reads itself.
constexpr std::int64_t adam_ahead_bytes = 2048, adam_block = 64;  // elements

template <class G>
WARPSTEP_LOOP void adam_loop(const AdamFactors& f, float* __restrict p,
                             const G* __restrict gradient, float* __restrict m, float* __restrict v,
                             std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += adam_block) {
    ask_ahead<adam_block, adam_ahead_bytes>(p + begin);
    ask_ahead<adam_block, adam_ahead_bytes>(gradient + begin);
    ask_ahead<adam_block, adam_ahead_bytes>(m + begin);
    ask_ahead<adam_block, adam_ahead_bytes>(v + begin);
    const std::int64_t end = std::min(count, begin + adam_block);
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
      m[i] += f.one_minus_beta1 * (g - m[i]);
      v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
      p[i] = f.keep * p[i] - f.rate * m[i] / (std::sqrt(v[i]) * f.root_scale + f.epsilon);
    }
  }
}
template <class G>
inline const auto adam = vectorized<adam_loop<G>>();

struct SgdFactors {
  float factor, decay, momentum, nesterov, rate;
};

template <class G>
WARPSTEP_LOOP void sgd_with_momentum_loop(const SgdFactors& f, float* __restrict p,
                                          const G* __restrict gradient, float* __restrict m,
                                          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    m[i] = f.momentum * m[i] + g;
    p[i] -= f.rate * (f.nesterov != 0 ? g + f.momentum * m[i] : m[i]);
  }
}
template <class G>
inline const auto sgd_with_momentum = vectorized<sgd_with_momentum_loop<G>>();

template <class G>
WARPSTEP_LOOP void sgd_loop(const SgdFactors& f, float* __restrict p, const G* __restrict gradient,
                            std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    p[i] -= f.rate * (f.factor * as_float(gradient[i]) + f.decay * p[i]);
}
template <class G>
inline const auto sgd = vectorized<sgd_loop<G>>();

struct RmspropFactors {
  float factor, decay, alpha, one_minus_alpha, epsilon, momentum, rate;
};

template <class G>
WARPSTEP_LOOP void rmsprop_loop(const RmspropFactors& f, float* __restrict p,
                                const G* __restrict gradient, float* __restrict square,
                                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    square[i] = f.alpha * square[i] + f.one_minus_alpha * (g * g);
    p[i] -= f.rate * (g / (std::sqrt(square[i]) + f.epsilon));
  }
}
template <class G>
inline const auto rmsprop = vectorized<rmsprop_loop<G>>();

template <class G>
WARPSTEP_LOOP void rmsprop_with_momentum_loop(const RmspropFactors& f, float* __restrict p,
                                              const G* __restrict gradient,
                                              float* __restrict square, float* __restrict m,
                                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = f.factor * as_float(gradient[i]) + f.decay * p[i];
    square[i] = f.alpha * square[i] + f.one_minus_alpha * (g * g);
    m[i] = f.momentum * m[i] + g / (std::sqrt(square[i]) + f.epsilon);
    p[i] -= f.rate * m[i];
  }
}
template <class G>
inline const auto rmsprop_with_momentum = vectorized<rmsprop_with_momentum_loop<G>>();

// An optimiser's rule in one step, for gradients of type G.
template <class G>
class Rule {
 public:
  Rule(const Optimizer& o, const StepState& state)
      : kind_(o.kind),
        moments_(o.moments()),
        adam_(adam_factors(o, state)),
        sgd_{state.gradient_factor, static_cast<float>(o.weight_decay),
             static_cast<float>(o.momentum), o.nesterov ? 1.0F : 0.0F, state.learning_rate},
        rmsprop_{state.gradient_factor,
                 static_cast<float>(o.weight_decay),
                 static_cast<float>(o.alpha),
                 static_cast<float>(1 - o.alpha),
                 static_cast<float>(o.epsilon),
                 static_cast<float>(o.momentum),
                 state.learning_rate} {}

  // Of `count` elements; m and v are null where the rule has no such moment.
  void operator()(float* p, const G* g, float* m, float* v, std::int64_t count) const {
    if (kind_ == Optimizer::Kind::rmsprop && moments_ == 2)
      rmsprop_with_momentum<G>(rmsprop_, p, g, m, v, count);
    else if (kind_ == Optimizer::Kind::rmsprop)
      rmsprop<G>(rmsprop_, p, g, m, count);
    else if (moments_ == 2)
      adam<G>(adam_, p, g, m, v, count);
    else if (moments_ == 1)
      sgd_with_momentum<G>(sgd_, p, g, m, count);
    else
      sgd<G>(sgd_, p, g, count);
  }

 private:
  Optimizer::Kind kind_;
  int moments_;
  AdamFactors adam_;
  SgdFactors sgd_;
  RmspropFactors rmsprop_;
};

// Of moments in bf16.
WARPSTEP_LOOP void widen_loop(const Bf16* __restrict from, float* __restrict to,
                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}
inline const auto widen = vectorized<widen_loop>();

}  // namespace warpstep::cpu

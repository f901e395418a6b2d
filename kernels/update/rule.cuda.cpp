// An optimiser's coefficients for the kernel. A separate file, so that tests link it without the
// backend.
#include "engine/graph/ops/update.h"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {

UpdateRule update_rule(const Optimizer& o) {
  using Kind = UpdateRule::Kind;
  UpdateRule rule;
  const bool decoupled = o.kind == Optimizer::Kind::adamw;
  (decoupled ? rule.decoupled_decay : rule.decay) = static_cast<float>(o.weight_decay);
  rule.epsilon = static_cast<float>(o.epsilon);
  if (o.kind == Optimizer::Kind::rmsprop) {
    rule.kind = o.momentum != 0 ? Kind::rmsprop_momentum : Kind::rmsprop;
    rule.momentum = static_cast<float>(o.momentum);
    rule.beta2 = static_cast<float>(o.alpha);
    rule.one_minus_beta2 = static_cast<float>(1 - o.alpha);
    return rule;
  }
  if (!o.adaptive()) {
    rule.momentum = static_cast<float>(o.momentum);
    rule.kind = o.moments() == 0 ? Kind::sgd : o.nesterov ? Kind::nesterov : Kind::momentum;
    return rule;
  }
  rule.kind = Kind::adam;
  rule.one_minus_beta1 = static_cast<float>(1 - o.beta1);
  rule.beta2 = static_cast<float>(o.beta2);
  rule.one_minus_beta2 = static_cast<float>(1 - o.beta2);
  return rule;
}

}  // namespace warpstep::cuda

#include "engine/graph/adjoint.h"

#include "engine/core/error.h"

namespace warpstep {

Tensor Adjoint::d_out(int i) const {
  const int id = gradients_[idx(out(i).id)];
  if (id < 0) fail<Error>("{}: no gradient arrives from the loss", node_.title());
  return {&graph_, id};
}

void Adjoint::give(int i, Tensor gradient) {
  int& slot = gradients_[idx(in(i).id)];
  if (slot < 0) {
    slot = gradient.id;
    return;
  }
  const int sum = record(Phase::data_grad, Add{}, {{&graph_, slot}, gradient})[0].id;
  // The parts of a parameter's gradient are stored as the parameter is.
  if (const Value& value = graph_.value(in(i).id); value.role == Role::parameter)
    for (const int part : {slot, gradient.id, sum}) graph_.value(part).parameter = value.parameter;
  slot = sum;
}

}  // namespace warpstep

#include "engine/graph/adjoint.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace warpstep {

Tensor Adjoint::d_out(int i) const {
  const int id = gradients_[idx(out(i).id)];
  if (id < 0) fail<Error>("{}: no gradient arrives from the loss", node_.title());
  return {&graph_, id};
}

void Adjoint::give(int i, Tensor gradient) {
  const Shape &wanted = in(i).type().shape, &given = gradient.type().shape;
  if (std::holds_alternative<Custom>(node_.op) && given != wanted)
    fail<ShapeError>("{}: its grad() gives a gradient of {} for input {}, which is {}",
                     node_.title(), given.text(), i, wanted.text());
  int& slot = gradients_[idx(in(i).id)];
  if (slot < 0) {
    slot = gradient.id;
    return;
  }
  const int sum = record(Phase::data_grad, Add{}, {{&graph_, slot}, gradient})[0].id;
  // The parts of a parameter's gradient are stored as the parameter is.
  if (const Value& value = graph_.value(in(i).id); value.role == Role::parameter)
    for (const int part : {slot, gradient.id, sum}) graph_.value(part).owner = value.owner;
  slot = sum;
}

bool Adjoint::has_own_gradient(int i) const {
  const int id = gradients_[idx(in(i).id)];
  return id >= 0 && std::ranges::count(gradients_, id) == 1;
}

Tensor Adjoint::take_gradient(int i) {
  const Value parameter = graph_.value(in(i).id);
  if (parameter.role != Role::parameter)
    fail<Error>("{}: only a parameter's gradient is added to in place, not that of {}",
                node_.title(), parameter.name);
  if (!has_own_gradient(i))
    fail<Error>("{}: {} has no gradient of its own yet", node_.title(), parameter.name);
  const int id = std::exchange(gradients_[idx(in(i).id)], -1);
  Value& part = graph_.value(id);
  part.role = Role::gradient;
  part.name = "d_" + parameter.name + " so far";
  part.owner = parameter.owner;
  return {&graph_, id};
}

}  // namespace warpstep

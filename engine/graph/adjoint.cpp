#include "engine/graph/adjoint.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace warpstep {

Tensor Adjoint::in(int i) const {
  if (i < 0 || idx(i) >= node_.in.size())
    fail<Error>("{}: its grad() names input {} of {}", node_.title(), i, node_.in.size());
  return {&graph_, node_.in[idx(i)]};
}

Tensor Adjoint::out(int i) const {
  if (i < 0 || idx(i) >= node_.out.size())
    fail<Error>("{}: its grad() names output {} of {}", node_.title(), i, node_.out.size());
  return {&graph_, node_.out[idx(i)]};
}

Tensor Adjoint::d_out(int i) const {
  const int id = gradients_[idx(out(i).id)];
  if (id < 0) fail<Error>("{}: no gradient arrives from the loss", node_.title());
  return {&graph_, id};
}

void Adjoint::give(int i, Tensor gradient) {
  const Type wanted = in(i).type(), given = gradient.type();
  if (std::holds_alternative<Custom>(node_.op)) {
    if (gradient.graph != &graph_)
      fail<UsageError>("{}: its grad() gives input {} a gradient of another graph", node_.title(),
                       i);
    if (given.shape != wanted.shape)
      fail<ShapeError>("{}: its grad() gives a gradient of {} for input {}, which is {}",
                       node_.title(), given.shape.text(), i, wanted.shape.text());
    if (!is_float(given.dtype))
      fail<ShapeError>("{}: its grad() gives input {} a gradient of {}; gradients are numbers",
                       node_.title(), i, given.text());
  }
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

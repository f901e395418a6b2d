#include <cmath>

#include "engine/store.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

void sgd(const Optimizer& o, double rate, double& p, double g, double* momentum) {
  g += o.weight_decay * p;
  if (momentum) {
    *momentum = o.momentum * *momentum + g;
    g = o.nesterov ? g + o.momentum * *momentum : *momentum;
  }
  p -= rate * g;
}

void adam(const Optimizer& o, const StepState& state, double& p, double g, double& m, double& v) {
  const double rate = static_cast<double>(state.learning_rate), decay = o.weight_decay;
  if (o.kind == Optimizer::Kind::adamw)
    p *= 1 - rate * decay;
  else
    g += decay * p;
  m += (1 - o.beta1) * (g - m);
  v = o.beta2 * v + (1 - o.beta2) * g * g;
  const double root = std::sqrt(v) / std::sqrt(static_cast<double>(state.bias_correction2));
  p -= rate / static_cast<double>(state.bias_correction1) * m / (root + o.epsilon);
}

void update(const Optimizer& o, const Buffers& b, std::int64_t count) {
  const StepState state = *as<StepState>(b.in[2]);
  double* first = o.moments() > 0 ? as<double>(b.in[3]) : nullptr;
  double* second = o.moments() > 1 ? as<double>(b.in[4]) : nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    double& p = as<double>(b.in[0])[i];
    const double g = as<double>(b.in[1])[i];
    if (o.kind == Optimizer::Kind::sgd)
      sgd(o, static_cast<double>(state.learning_rate), p, g, first ? first + i : nullptr);
    else
      adam(o, state, p, g, first[i], second[i]);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return host_kernel("clock", [op](const Buffers& b) {
    tick(*as<StepState>(b.in[0]), op.schedule, op.beta1, op.beta2, op.scaling);
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  return host_kernel("loops", [op, count = operands.in_shape(0).count()](const Buffers& b) {
    update(op.optimizer, b, count);
  });
}

// The sections' padding between parameters is zero and stays zero: its gradient and moments are
// zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  const auto count = static_cast<std::int64_t>(sections(operands.graph).bytes / sizeof(double));
  return host_kernel("loops", [op, count](const Buffers& b) { update(op.optimizer, b, count); });
}

}  // namespace warpstep::ref

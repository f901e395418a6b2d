#include <algorithm>
#include <cmath>

#include "engine/store.h"
#include "kernels/ref/ref.h"
#include "kernels/update/gradients.h"

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

void update(const Update& op, const Buffers& b, std::int64_t count, DType copied) {
  const Optimizer& o = op.optimizer;
  const StepState state = *as<StepState>(b.in[2]);
  if (!updates(state)) return;
  double* first = o.moments() > 0 ? as<double>(b.in[3]) : nullptr;
  double* second = o.moments() > 1 ? as<double>(b.in[4]) : nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    double& p = as<double>(b.in[0])[i];
    const double g = as<double>(b.in[1])[i] * static_cast<double>(state.gradient_factor);
    if (!o.adaptive())
      sgd(o, static_cast<double>(state.learning_rate), p, g, first ? first + i : nullptr);
    else
      adam(o, state, p, g, first[i], second[i]);
    if (op.copy) as<double>(b.in[op.operands() - 1])[i] = rounded(p, copied);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const Clock& op, const Operands&) {
  return host_kernel("clock", [op](const Buffers& b) {
    tick(*as<StepState>(b.in[0]), op.schedule, op.beta1, op.beta2, op.scaling, op.accumulate);
  });
}

std::unique_ptr<Kernel> bind(const Update& op, const Operands& operands) {
  const DType copied = operands.in(static_cast<int>(op.operands()) - 1).type.dtype;
  return host_kernel("loops", [op, copied, count = operands.in_shape(0).count()](const Buffers& b) {
    update(op, b, count, copied);
  });
}

// The sections' padding between parameters is zero and stays zero: its gradient and moments are
// zero.
std::unique_ptr<Kernel> bind(const UpdateAll& op, const Operands& operands) {
  const std::int64_t count = section_elements(operands.graph, sizeof(double));
  const Update each{op.optimizer, op.copy};
  const DType copied = operands.in(static_cast<int>(each.operands()) - 1).type.dtype;
  return host_kernel("loops",
                     [each, copied, count](const Buffers& b) { update(each, b, count, copied); });
}

std::unique_ptr<Kernel> bind(const Report&, const Operands&) {
  return host_kernel("report", [](const Buffers& b) {
    const auto& state = *as<StepState>(b.in[b.in.size() - 2]);
    const std::int32_t correct = b.in.size() == 4 ? *as<std::int32_t>(b.in[1]) : 0;
    as<StepReport>(b.in.back())[state.step % report_ring] =
        report_of(static_cast<float>(*as<double>(b.in[0])), correct, state);
  });
}

}  // namespace warpstep::ref

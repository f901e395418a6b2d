// Optimiser updates and the clock of the step. They change their inputs in place and have no
// outputs.
#pragma once

#include "engine/ops/op.h"
#include "engine/step_state.h"

namespace warpstep {

// With PyTorch's definitions and defaults; all arithmetic in f32.
struct Optimizer {
  enum class Kind : std::uint8_t { sgd, adam, adamw };
  Kind kind = Kind::adam;
  double momentum = 0;  // sgd
  bool nesterov = false;
  double weight_decay = 0;  // sgd, adam: added to the gradient; adamw: decoupled
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool operator==(const Optimizer&) const = default;

  int moments() const { return kind == Kind::sgd ? (momentum != 0 ? 1 : 0) : 2; }
};
std::string_view name(Optimizer::Kind kind);
std::string text(const Optimizer& optimizer);

// state: the first call of every training step, see step_state.h.
struct Clock {
  static constexpr std::string_view name = "clock";
  Schedule schedule;
  double beta1 = 0;
  double beta2 = 0;
  LossScaling scaling;
  bool operator==(const Clock&) const = default;
};
Types infer(const Clock& op, const Types& in);
Cost cost(const Clock& op, const Types& in, const Types& out);
std::string text(const Clock& op);

// parameter, gradient, state, moments..., copy if any: one parameter. The gradient is divided by
// the loss scale first, and nothing happens in a step that overflowed. The copy is the parameter in
// the dtype that the step computes in.
struct Update {
  static constexpr std::string_view name = "update";
  Optimizer optimizer;
  bool copy = false;  // set by the precision
  std::size_t operands() const { return idx(3 + optimizer.moments() + (copy ? 1 : 0)); }
  bool operator==(const Update&) const = default;
};
Types infer(const Update& op, const Types& in);
Cost cost(const Update& op, const Types& in, const Types& out);
std::string text(const Update& op);

// The inputs of each Update in turn: all parameters, which lie in one arena with their gradients
// and moments at equal offsets, in one pass. Made by fusion.
struct UpdateAll {
  static constexpr std::string_view name = "update_all";
  Optimizer optimizer;
  bool copy = false;
  bool operator==(const UpdateAll&) const = default;
};
Types infer(const UpdateAll& op, const Types& in);
Cost cost(const UpdateAll& op, const Types& in, const Types& out);
std::string text(const UpdateAll& op);

// state, gradients...: the state's overflow becomes 1 if one of them is not finite. All gradients
// lie in one section of the store.
struct CheckGradients {
  static constexpr std::string_view name = "check_gradients";
  bool operator==(const CheckGradients&) const = default;
};
Types infer(const CheckGradients& op, const Types& in);
Cost cost(const CheckGradients& op, const Types& in, const Types& out);

// loss, top-1 count, state, ring: the last call of a training step, see StepReport.
struct Report {
  static constexpr std::string_view name = "report";
  bool operator==(const Report&) const = default;
};
Types infer(const Report& op, const Types& in);
Cost cost(const Report& op, const Types& in, const Types& out);

}  // namespace warpstep

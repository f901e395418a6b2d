// Optimiser updates and the clock of the step. They change their inputs in place and have no
// outputs.
#pragma once

#include "engine/graph/ops/op.h"
#include "engine/graph/step_state.h"

namespace warpstep {

// With PyTorch's definitions and defaults; all arithmetic in f32.
struct Optimizer {
  enum class Kind : std::uint8_t { sgd, adam, adamw, lars, rmsprop };
  Kind kind = Kind::adam;
  double momentum = 0;  // sgd, lars, rmsprop
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient; adamw: decoupled
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;  // adam, adamw, rmsprop
  double alpha = 0.99;    // rmsprop: decay of the mean of the gradients' squares
  double trust = 0.001;   // lars: the trust coefficient
  // Whether parameters of rank 1 (biases, gains of norms) decay, too; lars never decays them.
  bool decays_vectors = true;
  // Of the moments: f32, or bf16, to which they are rounded at random (narrowed_at_random()) with
  // the chance that keeps their mean. To the nearest, a mean of squares would stop: beta2 = 0.999
  // changes it by less than half the distance of two bf16.
  DType moment_dtype = DType::f32;
  bool operator==(const Optimizer&) const = default;

  bool adaptive() const { return kind == Kind::adam || kind == Kind::adamw; }
  // adam, adamw: mean and mean square; rmsprop: mean square, then momentum's buffer if any.
  int moments() const {
    const int buffers = momentum != 0 ? 1 : 0;
    return adaptive() ? 2 : kind == Kind::rmsprop ? 1 + buffers : buffers;
  }
};
std::string_view name(Optimizer::Kind kind);
std::string text(const Optimizer& optimizer);

// state: the first call of every training step, see step_state.h.
struct Clock {
  static constexpr std::string_view name = "clock";
  static constexpr OpTraits traits{.kind = OpKind::state,
                                   .in_place = inputs(),
                                   .changes = roles(Role::state),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Schedule schedule;
  double beta1 = 0;
  double beta2 = 0;
  LossScaling scaling;
  std::int64_t accumulate = 1;  // steps per update
  Replica replica;
  bool operator==(const Clock&) const = default;
};
Types infer(const Clock& op, const Types& in);
Cost cost(const Clock& op, const Types& in, const Types& out);
std::string text(const Clock& op);

// parameter, gradient, state, moments..., copy if any: one parameter. The gradient is multiplied by
// the state's gradient_factor first, and nothing happens in a step that overflowed or only
// accumulates. The copy is the parameter in the dtype that the step computes in.
struct Update {
  static constexpr std::string_view name = "update";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::parameter, Role::moment, Role::copy),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Optimizer optimizer;
  bool copy = false;  // set by the precision
  std::size_t operands() const { return idx(3 + optimizer.moments() + (copy ? 1 : 0)); }
  bool operator==(const Update&) const = default;
};
Types infer(const Update& op, const Types& in);
Cost cost(const Update& op, const Types& in, const Types& out);
std::string text(const Update& op);

// The inputs of each Update in turn: all parameters, which lie in one arena with their gradients
// and moments at equal offsets, in one pass; where biases do not decay, two: matrices, and the
// rest. Made by fusion.
struct UpdateAll {
  static constexpr std::string_view name = "update_all";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::parameter, Role::moment, Role::copy),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Optimizer optimizer;
  bool copy = false;
  bool operator==(const UpdateAll&) const = default;
};
Types infer(const UpdateAll& op, const Types& in);
Cost cost(const UpdateAll& op, const Types& in, const Types& out);
std::string text(const UpdateAll& op);

// state, gradients...: the state's overflow becomes 1 if one of them is not finite, its
// gradient_norm the L2 norm of all of them together, without the loss scale. With clip_norm above 0
// the state's gradient_factor shrinks so that the norm of what the update uses is at most that
// (torch.nn.utils.clip_grad_norm_: factor clip_norm / (norm + 1e-6), at most 1). A step that only
// accumulates looks for overflow alone. All gradients lie in one section of the store; those that
// are summed over steps in another, f32. With Graph::shards each rank looks at its share, and all
// combine what they found.
struct CheckGradients {
  static constexpr std::string_view name = "check_gradients";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::state),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  double clip_norm = 0;
  bool operator==(const CheckGradients&) const = default;
};
Types infer(const CheckGradients& op, const Types& in);
Cost cost(const CheckGradients& op, const Types& in, const Types& out);
std::string text(const CheckGradients& op);

// state, then gradient, sum of each parameter: gradient accumulation over `steps` steps. The sum
// (f32, Role::accumulator) becomes gradient / steps in the first of them and grows by as much in
// the others. Only the last one's state lets the updates that follow happen, see StepState::update.
struct Accumulate {
  static constexpr std::string_view name = "accumulate";
  static constexpr OpTraits traits{.kind = OpKind::state,
                                   .in_place = inputs(),
                                   .changes = roles(Role::accumulator),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t steps = 1;
  bool operator==(const Accumulate&) const = default;
};
Types infer(const Accumulate& op, const Types& in);
Cost cost(const Accumulate& op, const Types& in, const Types& out);
std::string text(const Accumulate& op);

// gradients...: they become, in place, the mean over the ranks of a data-parallel job
// (engine/dist/communicator.h), with which the backend was opened. All lie in one section of the
// store, in the order of the section. On a CPU they are added in the order of the ranks, in f32; on
// GPUs by NCCL, in their own dtype. With `to_owners` only the rank that updates an element gets its
// mean (Graph::shards). A step that only accumulates leaves the call out (Program::accumulate).
// Made by passes/reduce.h.
struct AllReduce {
  static constexpr std::string_view name = "all_reduce";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::gradient, Role::accumulator),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t ranks = 1;
  bool to_owners = false;
  bool operator==(const AllReduce&) const = default;
};
Types infer(const AllReduce& op, const Types& in);
Cost cost(const AllReduce& op, const Types& in, const Types& out);
std::string text(const AllReduce& op);

// parameters, then copies if any, in the order of their sections: each rank has updated its share
// (Graph::shards), and gets the others'. A step that only accumulates leaves the call out. Made by
// passes/reduce.h.
struct AllGather {
  static constexpr std::string_view name = "all_gather";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::parameter, Role::copy),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t ranks = 1;
  bool operator==(const AllGather&) const = default;
};
Types infer(const AllGather& op, const Types& in);
Cost cost(const AllGather& op, const Types& in, const Types& out);
std::string text(const AllGather& op);

// state, then parameter, gradient of each parameter: layer-wise adaptive rates (You, Gitman and
// Ginsburg, "Large batch training of convolutional networks", 2017, in the form of a scaled
// gradient before momentum). With g as the update uses it, without the loss scale and clipped, a
// gradient of rank 2 and more becomes trust |w| / (|g| + decay |w| + epsilon) times (g + decay w);
// others (biases, norms) stay as they are, and so does one whose |w| or |g| is 0. It is stored in
// place, so that the update's gradient_factor gives that: times the loss scale and divided by the
// factor of the clipping. If a stored number is not finite, the state's overflow becomes 1.
struct LarsScale {
  static constexpr std::string_view name = "lars";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::state, Role::gradient, Role::accumulator),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  double trust = 0.001;
  double weight_decay = 0;
  double epsilon = 1e-8;
  bool operator==(const LarsScale&) const = default;
};
Types infer(const LarsScale& op, const Types& in);
Cost cost(const LarsScale& op, const Types& in, const Types& out);
std::string text(const LarsScale& op);

// state, then parameter, average of each parameter: average = decay average + (1 - decay) parameter
// after each update, nothing in a step without one. Both lie in sections of the store.
struct Average {
  static constexpr std::string_view name = "average";
  static constexpr OpTraits traits{.kind = OpKind::update,
                                   .in_place = inputs(),
                                   .changes = roles(Role::average),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  double decay = 0.999;
  bool operator==(const Average&) const = default;
};
Types infer(const Average& op, const Types& in);
Cost cost(const Average& op, const Types& in, const Types& out);
std::string text(const Average& op);

// loss, top-1 count if there is one, state, ring: the last call of a training step, see StepReport.
struct Report {
  static constexpr std::string_view name = "report";
  static constexpr OpTraits traits{.kind = OpKind::state,
                                   .in_place = inputs(),
                                   .changes = roles(Role::report),
                                   .f32 = F32::inputs,
                                   .layout_of = own_layout};
  bool operator==(const Report&) const = default;
};
Types infer(const Report& op, const Types& in);
Cost cost(const Report& op, const Types& in, const Types& out);

}  // namespace warpstep

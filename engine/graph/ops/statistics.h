// Statistics of a training step, block by block of the model: calls that only some steps run (see
// engine/passes/statistics.h), and that write sums for the host to a ring, as Report does.
#pragma once

#include "engine/graph/ops/update.h"

namespace warpstep {

// A block's row of the ring: sums over the gradients, values and changes of its parameters, and
// over its output. Not finite where an element is not; zeros where there is nothing to sum.
struct BlockSums {
  double gradient_squares = 0;   // as the optimiser receives them, without loss scale and clipping
  double parameter_squares = 0;  // before the step's update
  double update_squares = 0;     // of what the update adds to the parameters
  double sum = 0;                // of the output's elements
  double squares = 0;
  double largest = 0;  // magnitude; a NaN does not count
  double nonzero = 0;  // elements
};

// state, ring, x: the sums of a block's output.
struct ActivationStatistics {
  static constexpr std::string_view name = "activation_statistics";
  static constexpr OpTraits traits{.kind = OpKind::measure,
                                   .in_place = inputs(),
                                   .changes = roles(Role::sums),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t block = 0;   // the row
  std::int64_t blocks = 0;  // rows of a step
  bool operator==(const ActivationStatistics&) const = default;
};
Types infer(const ActivationStatistics& op, const Types& in);
Cost cost(const ActivationStatistics& op, const Types& in, const Types& out);
std::string text(const ActivationStatistics& op);

// state, ring, then parameter, gradient, moments... of one parameter: computes the update that
// follows without making it, and adds its sums to those of the block; the block's first parameter
// begins them. In a step that updates nothing, the update's are 0.
struct UpdateStatistics {
  static constexpr std::string_view name = "update_statistics";
  static constexpr OpTraits traits{.kind = OpKind::measure,
                                   .in_place = inputs(),
                                   .changes = roles(Role::sums),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Optimizer optimizer;  // the parameter's own rule
  std::int64_t block = 0;
  std::int64_t blocks = 0;
  bool first = false;  // of the block
  bool operator==(const UpdateStatistics&) const = default;
};
Types infer(const UpdateStatistics& op, const Types& in);
Cost cost(const UpdateStatistics& op, const Types& in, const Types& out);
std::string text(const UpdateStatistics& op);

// The row of a block in the ring, in the step that `state` is in.
inline BlockSums& block_sums(BlockSums* ring, const StepState& state, std::int64_t blocks,
                             std::int64_t block) {
  return ring[(state.step % report_ring) * blocks + block];
}

}  // namespace warpstep

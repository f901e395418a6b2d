// All that changes from one step to the next: one small record in the memory of the device,
// advanced by the first call of the step, so that a recorded step can be replayed without the host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace warpstep {

// The learning rate as a function of the step. Counts are updates of the optimiser: with gradient
// accumulation several steps, of a batch each, make one.
struct Schedule {
  enum class Kind : std::uint8_t { constant, step, cosine, one_cycle };
  Kind kind = Kind::constant;
  double peak = 1e-3;  // the rate that --lr names
  // Linear from peak / (warmup + 1) to peak. Then cosine and one_cycle begin; a step schedule has
  // counted from the run's first step.
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  // of the run; cosine and one_cycle end there
  // step: the rate is multiplied by gamma once in so many batches, of which an update sums
  // `accumulate`: a period need not be a whole number of updates.
  std::int64_t period_batches = 0, accumulate = 1;
  // step: of a run whose earlier epochs had another length than now: how many batches more it would
  // have had with epochs of the present length; below 0: fewer.
  std::int64_t offset_batches = 0;
  double gamma = 0.1;           // step
  double final_fraction = 0;    // cosine: the last rate as a share of peak
  double rise_fraction = 0.3;   // one_cycle, as PyTorch's OneCycleLR: pct_start,
  double initial_divisor = 25;  // div_factor
  double final_divisor =
      1e4;  // and final_div_factor, with cosine annealing; momentum is not cycled
  bool operator==(const Schedule&) const = default;
};
std::string text(const Schedule& schedule);

// Learning rate of step `step`, counted from 0.
double learning_rate(const Schedule& schedule, std::int64_t step);

// Dynamic loss scaling, as PyTorch's GradScaler: gradients of fp16 steps are computed of a loss
// that is multiplied by `loss_scale`, so that they do not vanish; when one overflows, the step's
// update is left out and the scale falls, and after `interval` steps without an overflow it grows.
struct LossScaling {
  bool enabled = false;
  float initial = 65536;
  float growth = 2;
  float backoff = 0.5F;
  std::int32_t interval = 2000;
  float largest = 16777216;  // 2^24
  bool operator==(const LossScaling&) const = default;
};

// Which of the data-parallel processes of a job a step runs in.
struct Replica {
  std::int64_t ranks = 1, rank = 0;
  bool operator==(const Replica&) const = default;
};

struct StepState {
  std::int64_t step = 0;     // begun so far: in the first step it is 1 once the clock has ticked
  std::int64_t skipped = 0;  // updates before this one that were left out: a gradient overflowed
  float learning_rate = 0;
  float loss_scale = 1;
  float bias_correction1 = 1;   // Adam: 1 - beta1^n in the n-th update that is not skipped
  float bias_correction2 = 1;   // Adam: 1 - beta2^n
  std::int32_t good_steps = 0;  // since the loss scale last changed
  std::uint32_t overflow = 0;   // 1: a gradient of this step, or of one that its update sums, is
                                // not finite
  std::uint64_t begin_ns = 0;   // when the clock ticked, on a clock of the device
  std::uint64_t seed = 0;       // of the run, for dropout
  float gradient_factor = 1;    // what the update multiplies gradients by: unscaling and clipping
  float gradient_norm = 0;      // global L2 norm of the step's gradients, where it is computed
  std::int32_t micro_step = 0;  // of gradient accumulation, from 0
  std::uint32_t update = 1;     // 0: this step only accumulates
  // The steps of all ranks counted in turn, from 1, as one process would make them that accumulates
  // over as many: random draws of a step are named by it.
  std::int64_t draw = 0;
  // The update that the step belongs to, from 1, whatever the number of ranks and of steps that
  // share it: random draws of an update are named by it.
  std::int64_t update_index = 0;
};

// The first of a step's draws for a tensor of `count` elements, one each. The draws of a step
// follow those of the step before, and those of a rank those of the rank before it: a draw is named
// by the place of its row in the whole run, however many ranks share the rows.
constexpr std::uint64_t first_draw(const StepState& state, std::int64_t count) {
  return (static_cast<std::uint64_t>(state.draw) - 1) * static_cast<std::uint64_t>(count);
}

// What the host learns of a step, some steps late, without waiting for the device: the last call of
// a step writes it to a ring in host memory, at step % report_ring.
struct StepReport {
  std::int64_t step = 0;
  float loss = 0;
  std::int32_t correct = 0;  // 0 in a graph that counts none
  float learning_rate = 0;
  float loss_scale = 1;
  std::int64_t skipped = 0;    // updates before this step's
  std::uint32_t overflow = 0;  // 1: so is this one
  float gradient_norm = 0;     // of the update's gradients; 0 where it is not computed
  std::uint64_t begin_ns = 0;  // first and last call, on one clock of the device
  std::uint64_t end_ns = 0;
};
constexpr std::int64_t report_ring = 128;
// Of a step that a host has just computed.
StepReport report_of(float loss, std::int32_t correct, const StepState& state);

// The step's clock, on a host: looks at what became of the last step, advances `state` to the next
// one and computes what depends on it. Every `accumulate` steps share an update, which happens in
// the last of them: learning rate, corrections and loss scale change from update to update alone.
void tick(StepState& state, const Schedule& schedule, double beta1, double beta2,
          const LossScaling& scaling = {}, std::int64_t accumulate = 1,
          const Replica& replica = {});

}  // namespace warpstep

#include "engine/graph/step_state.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "engine/core/clock.h"

namespace warpstep {
namespace {

double clock_cos_pi(double x) {
  return std::cos(std::numbers::pi * x);
}

double clock_power(double base, double n) {
  return std::pow(base, n);
}

#define STEP_CLOCK
#include "engine/graph/step_clock.inc"
#undef STEP_CLOCK

}  // namespace

double learning_rate(const Schedule& schedule, std::int64_t step) {
  return clock_rate(schedule, step);
}

void tick(StepState& state, const Schedule& schedule, double beta1, double beta2,
          const LossScaling& scaling, std::int64_t accumulate, const Replica& replica) {
  state.begin_ns = now_ns();
  clock_tick(state, schedule, beta1, beta2, scaling, accumulate, replica);
}

StepReport report_of(float loss, std::int32_t correct, const StepState& state) {
  return {.step = state.step,
          .loss = loss,
          .correct = correct,
          .learning_rate = state.learning_rate,
          .loss_scale = state.loss_scale,
          .skipped = state.skipped,
          .overflow = state.overflow,
          .gradient_norm = state.gradient_norm,
          .begin_ns = state.begin_ns,
          .end_ns = now_ns()};
}

std::string text(const Schedule& s) {
  std::string line;
  switch (s.kind) {
    case Schedule::Kind::constant: line = fmt::format("constant {}", s.peak); break;
    case Schedule::Kind::step:
      line = fmt::format("step {} x{} every {}", s.peak, s.gamma,
                         static_cast<double>(s.period_batches) / static_cast<double>(s.accumulate));
      break;
    case Schedule::Kind::cosine:
      line = fmt::format("cosine {} -> {}", s.peak, s.peak * s.final_fraction);
      break;
    case Schedule::Kind::one_cycle: line = fmt::format("one-cycle peak {}", s.peak); break;
  }
  if (s.warmup_steps > 0) line += fmt::format(", warm-up {}", s.warmup_steps);
  return line;
}

}  // namespace warpstep

#include "engine/step_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace warpstep {
namespace {

// Half a cosine from `start` at 0 to `end` at 1.
double anneal(double start, double end, double progress) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * progress));
}

double one_cycle(const Schedule& s, double step, double steps) {
  const double initial = s.peak / s.initial_divisor;
  const double turn = s.rise_fraction * steps - 1;  // the step of the peak; none at 0 or below
  if (step <= turn && turn > 0) return anneal(initial, s.peak, step / turn);
  return anneal(s.peak, initial / s.final_divisor,
                std::min(1.0, (step - turn) / (steps - 1 - turn)));
}

}  // namespace

double learning_rate(const Schedule& s, std::int64_t step) {
  if (step < s.warmup_steps)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps + 1);
  const auto since = static_cast<double>(step - s.warmup_steps);
  const auto span = static_cast<double>(std::max<std::int64_t>(1, s.total_steps - s.warmup_steps));
  switch (s.kind) {
    case Schedule::Kind::constant: return s.peak;
    case Schedule::Kind::step:
      return s.peak *
             std::pow(s.gamma, std::floor(since / static_cast<double>(
                                                      std::max<std::int64_t>(1, s.period_steps))));
    case Schedule::Kind::cosine:
      return anneal(s.peak, s.peak * s.final_fraction, std::min(1.0, since / span));
    case Schedule::Kind::one_cycle: return one_cycle(s, since, span);
  }
  return s.peak;
}

std::string text(const Schedule& s) {
  std::string line;
  switch (s.kind) {
    case Schedule::Kind::constant: line = fmt::format("constant {}", s.peak); break;
    case Schedule::Kind::step:
      line = fmt::format("step {} x{} every {}", s.peak, s.gamma, s.period_steps);
      break;
    case Schedule::Kind::cosine:
      line = fmt::format("cosine {} -> {}", s.peak, s.peak * s.final_fraction);
      break;
    case Schedule::Kind::one_cycle: line = fmt::format("one-cycle peak {}", s.peak); break;
  }
  if (s.warmup_steps > 0) line += fmt::format(", warm-up {}", s.warmup_steps);
  return line;
}

void tick(StepState& state, const Schedule& schedule, double beta1, double beta2) {
  state.learning_rate = static_cast<float>(learning_rate(schedule, state.step));
  ++state.step;
  state.bias_correction1 = static_cast<float>(1 - std::pow(beta1, static_cast<double>(state.step)));
  state.bias_correction2 = static_cast<float>(1 - std::pow(beta2, static_cast<double>(state.step)));
}

}  // namespace warpstep

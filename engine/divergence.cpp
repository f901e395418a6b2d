#include "engine/divergence.h"

#include <cmath>

#include "engine/core/error.h"
#include "engine/loss_scaling.h"

namespace warpstep {
namespace {

std::string number(double value) {  // a NaN has a sign, which says nothing
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

void require_sound(const StepRecord& r, bool scales_loss, std::uint64_t skipped) {
  const std::string where =
      fmt::format("in step {} (epoch {}, step {} of {}, learning rate {})", r.step, r.epoch,
                  r.step_in_epoch, r.steps_per_epoch, r.learning_rate);
  const bool finite = std::isfinite(r.loss);
  if (r.overflow && !scales_loss && finite)
    fail<NumericError>(
        "gradients are not finite {}, with a loss of {}; training diverged: use a lower --lr, a "
        "warm-up or a smaller --clip-norm. Nothing of this step was saved",
        where, r.loss);
  if (r.overflow && scales_loss && r.loss_scale < least_loss_scale)
    fail<NumericError>(
        "{} {} though the loss scale is down to {}: the last {} steps made no update, and a "
        "smaller scale would not help; training diverged: use a lower --lr, a warm-up, or "
        "--precision bf16. Nothing of this step was saved",
        finite ? "gradients overflow"
               : fmt::format("the loss is {}", number(static_cast<double>(r.loss))),
        where, r.loss_scale, skipped);
  if (!finite && !(r.overflow && scales_loss))
    fail<NumericError>(
        "the loss is {} {}; training diverged: use a lower --lr, a warm-up or another --seed. "
        "Nothing of this step was saved",
        number(static_cast<double>(r.loss)), where);
}

void require_sound(const EvaluationRecord& r) {
  if (std::isfinite(r.score.loss_sum)) return;
  fail<NumericError>(
      "the validation loss is {} after step {} (epoch {}); training diverged: use a lower --lr, "
      "a warm-up or another --seed. These weights were not saved",
      number(r.score.loss_sum), r.step, r.epoch);
}

}  // namespace warpstep

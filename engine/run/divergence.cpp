// Whether a run can continue after the result of a step or an evaluation.
#include <cmath>

#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/trainer.h"

namespace warpstep {
namespace {

std::string lower_rates(bool has_trust) {
  return has_trust ? "use a lower --trust, a lower --lr" : "use a lower --lr";
}

std::string loss_text(double value) {  // without a NaN's sign, which has no meaning
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

void require_sound(const StepRecord& r, bool scales_loss, std::uint64_t skipped, bool has_trust) {
  const std::string lower = lower_rates(has_trust);
  const std::string where =
      fmt::format("in step {} (epoch {}, step {} of {}, learning rate {})", r.step, r.epoch,
                  r.step_in_epoch, r.steps_per_epoch, r.learning_rate);
  const bool finite = std::isfinite(r.loss);
  if (r.overflow && !scales_loss && finite)
    fail<NumericError>(
        "gradients{} are not finite {}, with a loss of {}; training diverged: {}, a warm-up or a "
        "smaller --clip-norm. Nothing of this step was saved",
        has_trust ? ", or their products with LARS's rates," : "", where, r.loss, lower);
  if (r.overflow && scales_loss && r.loss_scale < least_loss_scale)
    fail<NumericError>(
        "{} {} though the loss scale is down to {}: the last {} steps made no update, and a "
        "smaller scale would not help; training diverged: {}, a warm-up, or --precision bf16. "
        "Nothing of this step was saved",
        finite ? "gradients overflow"
               : fmt::format("the loss is {}", loss_text(static_cast<double>(r.loss))),
        where, r.loss_scale, skipped, lower);
  if (!finite && !(r.overflow && scales_loss))
    fail<NumericError>(
        "the loss is {} {}; training diverged: {}, a warm-up or another --seed. Nothing of this "
        "step was saved",
        loss_text(static_cast<double>(r.loss)), where, lower);
}

void require_sound(const EvaluationRecord& r, bool has_trust) {
  if (std::isfinite(r.score.loss_sum)) return;
  if (r.step == 0)
    fail<NumericError>(
        "the validation loss is {} before the first step, so the initial weights or the data cause "
        "it; `warpstep weights info FILE` counts NaN in weights",
        loss_text(r.score.loss_sum));
  fail<NumericError>(
      "the validation loss is {} after step {} (epoch {}); training diverged: {}, a warm-up or "
      "another --seed. These weights were not saved",
      loss_text(r.score.loss_sum), r.step, r.epoch, lower_rates(has_trust));
}

}  // namespace warpstep

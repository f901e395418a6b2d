// Whether a run may go on with what a step or an evaluation gave.
#pragma once

#include "engine/trainer.h"

namespace warpstep {

// Throws NumericError that says where the run stood, when the loss is not finite, or gradients are
// not: without a loss scale at once, with one when it is below least_loss_scale. `skipped` counts
// the steps in a row, this one included, that made no update because their gradients overflowed.
void require_sound(const StepRecord& record, bool scales_loss, std::uint64_t skipped);
void require_sound(const EvaluationRecord& record);

}  // namespace warpstep

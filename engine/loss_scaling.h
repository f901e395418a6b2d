// What the host must know of dynamic loss scaling (LossScaling in step_state.h): when it is of no
// help any more, and what becomes of its state when a run goes on in another precision.
#pragma once

#include "engine/precision.h"
#include "engine/step_state.h"

namespace warpstep {

// Loss scaling keeps small gradients from vanishing in fp16; a scale below 1 would shrink them. A
// step that overflows with less cannot be helped by a smaller scale: the run has diverged. As each
// overflow halves the scale, and it grows after 2000 steps without one, a run of the first scale,
// 65536, leaves out at most 17 steps in a row before it ends, and one of the largest scale 25.
constexpr float least_loss_scale = 1;

// The state of a run that goes on with `to` after steps in `from`. Between fp16 and another
// precision loss scaling begins anew; an overflow of the last step, of which the next step's clock
// would have learnt, is counted as a step that was left out.
StepState in_precision(StepState state, Precision from, Precision to);

}  // namespace warpstep

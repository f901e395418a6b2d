#include "engine/loss_scaling.h"

namespace warpstep {

StepState in_precision(StepState state, Precision from, Precision to) {
  if ((from == Precision::fp16) == (to == Precision::fp16)) return state;
  state.skipped += state.overflow != 0 ? 1 : 0;
  state.overflow = 0;  // only the clock of fp16 clears it, and updates wait for that
  state.good_steps = 0;
  state.loss_scale = to == Precision::fp16 ? LossScaling{}.initial : 1;
  return state;
}

}  // namespace warpstep

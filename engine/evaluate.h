// What the trainer and evaluations share.
#pragma once

#include "engine/trainer.h"

namespace warpstep {

// The batch's images and labels, and the rows' plans for a step that takes them.
void give_batch(Program& program, const Batch& batch);

// `to`, the store of an evaluation, takes the averages and the buffers of `from`, through the
// memory of the host; Error where the models differ.
void take_average(const Store& from, Store& to);

}  // namespace warpstep

// Which dtype each value has, by its role.
#pragma once

#include <string_view>

#include "engine/graph/graph.h"
#include "engine/graph/step_state.h"

namespace warpstep {

enum class Precision : std::uint8_t { fp32, tf32, bf16, fp16 };
std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // UsageError with the names there are

// The dtype that activations, gradients and the parameters' copies are stored in.
DType storage_dtype(Precision precision);

// fp32 and tf32 leave the graph alone; tf32 is a matter of how a backend multiplies. With 16 bits
// the step computes with copies of the parameters, which the optimiser writes next to the f32
// masters; activations and gradients take 16 bits; losses, log-probabilities and moments stay f32.
// With fp16, a training step scales its loss, see LossScaling: gradients are checked and divided on
// the device.
Graph apply_precision(Graph graph, Precision precision);

// What the host must know of dynamic loss scaling (LossScaling in step_state.h): when it is of no
// help any more, and what becomes of its state when a run continues in another precision.

// Loss scaling keeps small gradients from vanishing in fp16; a scale below 1 would shrink them. A
// step that overflows with less cannot be helped by a smaller scale: the run has diverged. As each
// overflow halves the scale, and it grows after 2000 steps without one, a run of the first scale,
// 65536, leaves out at most 17 steps in a row before it ends, and one of the largest scale 25.
constexpr float least_loss_scale = 1;

// The state of a run that continues with `to` after steps in `from`, between two updates only if
// both or none are fp16: sums of gradients are times the loss scale. Between fp16 and another
// precision loss scaling starts over; the next step's clock counts an overflow of the last one.
StepState in_precision(StepState state, Precision from, Precision to);

}  // namespace warpstep

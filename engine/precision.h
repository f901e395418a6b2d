// Which dtype each value has, by its role.
#pragma once

#include <string_view>

#include "engine/graph.h"

namespace warpstep {

enum class Precision : std::uint8_t { fp32, tf32, bf16, fp16 };
std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // UsageError with the names there are

// The dtype that activations, gradients and the parameters' copies are stored in.
DType storage_dtype(Precision precision);

// fp32 and tf32 leave the graph alone; tf32 is a matter of how a backend multiplies. With 16 bits
// the step computes with copies of the parameters, which the optimiser writes beside the f32
// masters; activations and gradients take 16 bits; losses, log-probabilities and moments stay f32.
// With fp16, a training step scales its loss, see LossScaling: gradients are checked and divided on
// the device.
Graph apply_precision(Graph graph, Precision precision);

}  // namespace warpstep

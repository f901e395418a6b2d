// Which dtype each value has, by its role.
#pragma once

#include <string_view>

#include "engine/graph.h"

namespace warpstep {

enum class Precision : std::uint8_t { fp32, tf32, bf16, fp16 };
std::string_view name(Precision precision);
Precision parse_precision(std::string_view text);  // UsageError with the names there are

// The dtype that activations and their gradients are stored in. Statistics, parameters, moments and
// losses stay f32.
DType storage_dtype(Precision precision);

// fp32 and tf32 leave every dtype alone; tf32 is a matter of how a backend multiplies.
Graph apply_precision(Graph graph, Precision precision);

}  // namespace warpstep

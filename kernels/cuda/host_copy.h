// Between values as the host has them, rows of the logical shape with floating-point numbers in
// f32, and as the device stores them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/graph/graph.h"

namespace warpstep::cuda {

// What is stored for `plain`: converted to the value's dtype, zero beyond the logical shape.
std::vector<std::byte> packed(const Value& value, std::span<const std::byte> plain);
// And back.
void unpack(const Value& value, std::span<const std::byte> stored, std::span<std::byte> plain);

}  // namespace warpstep::cuda

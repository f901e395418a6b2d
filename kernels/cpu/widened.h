// Kernels of floats on operands that are stored as bf16.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/core/bf16.h"
#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

void to_floats(const Bf16* from, std::int64_t count, float* to);
void to_bf16(const float* from, std::int64_t count, Bf16* to);  // to the nearest, ties to even

// `kernel`, which computes with floats alone, for operands of which some may be bf16: those that it
// reads are copied to floats in the workspace before, those that it writes are rounded from there
// after it. Costs two passes over them; `kernel` itself where none is bf16.
std::unique_ptr<Kernel> widened(const Operands& operands, std::unique_ptr<Kernel> kernel);

}  // namespace warpstep::cpu

// Kernels of floats on operands that are stored as bf16.
#pragma once

#include <memory>

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

// `kernel`, which computes with floats alone, for operands of which some may be bf16: those that it
// reads are copied to floats in the workspace before, those that it writes are rounded from there
// after it. Costs two passes over them; `kernel` itself where none is bf16.
std::unique_ptr<Kernel> widened(const Operands& operands, std::unique_ptr<Kernel> kernel);

}  // namespace warpstep::cpu

// The variants of apply_pixels() for each instruction set: apply_pixels() chooses one, tests
// compare all.
#pragma once

#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/core/pixels.h"

namespace warpstep {

struct PixelsVariant {
  CpuIsa isa;
  decltype(&apply_pixels) apply;
};

// The variants that this machine can run, best first. All give the same bits.
std::vector<PixelsVariant> pixels_variants();

}  // namespace warpstep

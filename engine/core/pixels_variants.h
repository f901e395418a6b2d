// The variants of apply_pixels() by instruction set, for it to choose from and for tests to
// compare.
#pragma once

#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/core/pixels.h"

namespace warpstep {

struct PixelsVariant {
  CpuIsa isa;
  decltype(&apply_pixels) apply;
};

// Those that this machine can run, the best first. All give the same bits.
std::vector<PixelsVariant> pixels_variants();

}  // namespace warpstep

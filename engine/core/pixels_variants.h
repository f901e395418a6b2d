// The variants of apply_pixels() for each instruction set: apply_pixels() chooses one, tests
// compare all.
#pragma once

#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/core/pixels.h"

namespace warpstep {

struct PixelsVariant {
  CpuIsa isa;
  void (*apply)(const PixelPlan&, std::span<const RowPlan>, std::size_t, const std::uint8_t*,
                ImageExtent, ImageExtent, float*);
  void (*apply_in_bf16)(const PixelPlan&, std::span<const RowPlan>, std::size_t,
                        const std::uint8_t*, ImageExtent, ImageExtent, Bf16*);
};

// The variants that this machine can run, best first. All give the same bits.
std::vector<PixelsVariant> pixels_variants();

}  // namespace warpstep

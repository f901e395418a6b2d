#include "engine/core/pixels.h"

#include <cmath>
#include <cstring>

namespace warpstep {

void apply_pixels(const PixelPlan&, std::span<const RowPlan>, std::size_t, const std::uint8_t*,
                  ImageExtent, ImageExtent, float*) {}

}  // namespace warpstep

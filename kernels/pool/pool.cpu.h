// Addresses of pixels in images of either layout, for the CPU's pooling kernels.
#pragma once

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

// The `lanes` channels of group g of pixel (n, h, w) start at
// n * image + g * group + h * row + w * pixel.
struct PixelView {
  std::int64_t image, group, row, pixel;
  std::int64_t height, width;
};

inline PixelView pixel_view(const Value& value, std::int64_t lanes) {
  const Shape& s = value.type.shape;
  const std::int64_t h = s[1], w = s[2], c = s[3];
  if (value.layout.tag.empty()) return {h * w * c, lanes, w * c, c, h, w};
  return {h * w * c, h * w * lanes, w * lanes, lanes, h, w};
}

}  // namespace warpstep::cpu

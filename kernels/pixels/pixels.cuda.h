// The launcher of the CUDA kernel that converts a batch's bytes to the network's input.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/pixels.h"

namespace warpstep::cuda {

// y [rows, out.height, out.width, pitch] from images u8 [any, source.height, source.width,
// plan.channels], by one RowPlan per row. In f32 the result is bit-identical to
// engine/core/pixels.h; in 16 bits it is the same, rounded to nearest even. Channels of y after the
// plan's are 0; `pitch` is a multiple of 16 bytes.
struct AugmentShape {
  std::int64_t rows = 0;
  ImageExtent source, out;
  int pitch = 0;
  PixelPlan plan;
};
void augment(const AugmentShape& shape, const std::uint8_t* images, const RowPlan* rows, void* y,
             DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

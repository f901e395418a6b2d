// The launcher of the CUDA kernel that makes the network's numbers of a batch's bytes.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/pixels.h"

namespace warpstep::cuda {

// y [rows, out.height, out.width, pitch] of images u8 [any, source.height, source.width,
// plan.channels] by a RowPlan a row, see engine/core/pixels.h: in f32 to the bit, in 16 bits the
// same numbers rounded to nearest even. Channels of y beyond the plan's are 0; `pitch` is a
// multiple of 16 bytes.
struct AugmentShape {
  std::int64_t rows = 0;
  ImageExtent source, out;
  int pitch = 0;
  PixelPlan plan;
};
void augment(const AugmentShape& shape, const std::uint8_t* images, const RowPlan* rows, void* y,
             DType dtype, cudaStream_t stream);

}  // namespace warpstep::cuda

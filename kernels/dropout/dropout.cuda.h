// Launcher of the dropout CUDA kernel; engine/graph/ops/dropout.h defines the arithmetic.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep::cuda {

struct DropoutShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // logical elements per row
  std::int64_t stored = 0;   // with padding: a multiple of 16 bytes if it is more than `columns`
  double rate = 0;
  std::uint32_t layer = 0;
};

// y may be x. An element's random number depends on its place among rows x columns, not on the
// padding.
void dropout(const DropoutShape& shape, const void* x, const StepState* state, void* y, DType dtype,
             cudaStream_t stream);

}  // namespace warpstep::cuda

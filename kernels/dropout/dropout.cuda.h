// Launcher of the dropout CUDA kernel; see engine/graph/ops/dropout.h for what it computes.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep::cuda {

struct DropoutShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // numbers of a row
  std::int64_t stored = 0;   // of these and zeros behind them: a multiple of 16 bytes where
                             // it is more than `columns`
  double rate = 0;
  std::uint32_t layer = 0;
};

// y may be x. Every element's number is that of its place among rows x columns, however many are
// stored.
void dropout(const DropoutShape& shape, const void* x, const StepState* state, void* y, DType dtype,
             cudaStream_t stream);

}  // namespace warpstep::cuda

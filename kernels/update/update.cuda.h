// Launchers of what ends and begins a step: the clock, the overflow check, the optimiser over the
// flat sections of the store, and the step's report to the host.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/ops/update.h"
#include "engine/step_state.h"

namespace warpstep::cuda {

// One thread: state -> the state of the next step.
void clock(const Clock& op, StepState* state, cudaStream_t stream);

// state->overflow = 1 if any of `count` gradients is infinite or NaN. 2 bytes a gradient.
void check_gradients(const void* gradients, std::int64_t count, DType dtype, StepState* state,
                     cudaStream_t stream);

// One pass over `count` elements: unscales the gradient, leaves everything alone where
// state->overflow is set, updates the f32 parameter and its moments, and writes the copy in
// `dtype` (that of the gradients) where there is one. 28 bytes an element for Adam with 16-bit
// gradients and copy: bound by memory.
struct UpdateBuffers {
  float* parameters = nullptr;
  const void* gradients = nullptr;
  const StepState* state = nullptr;
  float* first = nullptr;  // moments; null where the optimiser has none
  float* second = nullptr;
  void* copy = nullptr;  // 16-bit, null in f32
};
void update(const Optimizer& optimizer, const UpdateBuffers& buffers, std::int64_t count,
            DType dtype, cudaStream_t stream);

// Writes the step's report to its place in the ring: host memory that the device can write.
void report(const float* loss, const std::int32_t* correct, const StepState* state,
            StepReport* ring, cudaStream_t stream);

}  // namespace warpstep::cuda

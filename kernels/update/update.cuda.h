// Launchers of what ends and begins a step: the clock, the overflow check, the optimiser over the
// flat sections of the store, and the step's report to the host.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/step_state.h"

namespace warpstep {
struct Optimizer;  // engine/ops/update.h, which needs fmt, which nvcc cannot compile
}

namespace warpstep::cuda {

// One thread: state -> the state of the next step, as tick().
void clock(const Schedule& schedule, double beta1, double beta2, const LossScaling& scaling,
           StepState* state, cudaStream_t stream);

// state->overflow = 1 if any of `count` gradients is infinite or NaN. 2 bytes a gradient.
void check_gradients(const void* gradients, std::int64_t count, DType dtype, StepState* state,
                     cudaStream_t stream);

// An optimiser as the kernel takes it: its coefficients, each rounded to f32 once, where the CPU
// backend rounds them as well.
struct UpdateRule {
  enum class Kind : std::uint8_t { sgd, momentum, nesterov, adam };
  Kind kind = Kind::sgd;
  float decay = 0;            // added to the gradient, times the parameter
  float decoupled_decay = 0;  // adamw: of the parameter, times the learning rate
  float momentum = 0;
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, epsilon = 0;
};
UpdateRule update_rule(const Optimizer& optimizer);

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
void update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count, DType dtype,
            cudaStream_t stream);

// Writes the step's report to its place in the ring: host memory that the device can write.
void report(const float* loss, const std::int32_t* correct, const StepState* state,
            StepReport* ring, cudaStream_t stream);

}  // namespace warpstep::cuda

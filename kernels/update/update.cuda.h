// Launchers of what ends and begins a step: the clock, the overflow check, the optimiser over the
// flat sections of the store, and the step's report to the host.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep {
struct Optimizer;  // engine/graph/ops/update.h, which needs fmt, which nvcc cannot compile
}

namespace warpstep::cuda {

// One thread: state -> the state of the next step, as tick().
void clock(const Schedule& schedule, double beta1, double beta2, const LossScaling& scaling,
           std::int64_t accumulate, StepState* state, cudaStream_t stream);

// state->overflow = 1 if any of `count` gradients is infinite or NaN; else, in a step that updates,
// its gradient_norm, and with clip_norm above 0 its gradient_factor. 2 bytes a gradient of 16 bits.
// `workspace` and `ticket` as for column_sums().
struct GradientBuffers {
  const void* gradients = nullptr;
  StepState* state = nullptr;
  void* workspace = nullptr;
  std::uint32_t* ticket = nullptr;
};
std::size_t check_gradients_workspace(std::int64_t count, DType dtype);
void check_gradients(const GradientBuffers& buffers, std::int64_t count, DType dtype,
                     double clip_norm, cudaStream_t stream);

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

// One pass over `count` elements: multiplies the gradient by state->gradient_factor, leaves
// everything alone where state->overflow is set or state->update is not, updates the f32 parameter
// and its moments, and writes the copy where there is one. Gradients are of the copies' dtype, or
// sums in f32. 28 bytes an element for Adam with 16-bit gradients and copy: bound by memory.
struct UpdateBuffers {
  float* parameters = nullptr;
  const void* gradients = nullptr;
  const StepState* state = nullptr;
  float* first = nullptr;  // moments; null where the optimiser has none
  float* second = nullptr;
  void* copy = nullptr;  // 16-bit, null in f32
};
void update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
            DType gradients, DType copies, cudaStream_t stream);

// sums = gradients times `share`, in the first micro step of an accumulation; else they grow by as
// much. 10 bytes an element of 16 bits.
void accumulate(const void* gradients, float* sums, std::int64_t count, DType dtype, float share,
                const StepState* state, cudaStream_t stream);

// averages = decay times averages + (1 - decay) times parameters, where the step updates. 12 bytes
// an element.
void average(const float* parameters, float* averages, std::int64_t count, double decay,
             const StepState* state, cudaStream_t stream);

// One parameter's gradient, in place, see LarsScale: norms, then the factor; two launches. 16 bytes
// an element of 16 bits. `workspace` of lars_workspace bytes may be that of the parameter before.
struct LarsRule {
  float trust = 0, decay = 0, epsilon = 0;
};
inline constexpr std::size_t lars_workspace = 64 * 2 * sizeof(double);
void lars(const LarsRule& rule, const float* parameters, void* gradients, std::int64_t count,
          DType dtype, const StepState* state, void* workspace, cudaStream_t stream);

// Writes the step's report to its place in the ring: host memory that the device can write.
void report(const float* loss, const std::int32_t* correct, const StepState* state,
            StepReport* ring, cudaStream_t stream);

}  // namespace warpstep::cuda

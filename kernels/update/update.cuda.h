// Launchers of the kernels that end and begin a step: the clock, the overflow check, the optimiser
// over the flat sections of the store, and the step's report to the host.
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "engine/core/types.h"
#include "engine/graph/step_state.h"

namespace warpstep {
struct Optimizer;  // engine/graph/ops/update.h, which needs fmt, which nvcc cannot compile
}

namespace warpstep::cuda {

// One thread: advances the state to the next step, as tick() does.
void clock(const Schedule& schedule, double beta1, double beta2, const LossScaling& scaling,
           std::int64_t accumulate, const Replica& replica, StepState* state, cudaStream_t stream);

// Sets state->overflow to 1 if any of `count` gradients is infinite or NaN; else, in a step that
// updates, sets gradient_norm, and with clip_norm above 0 gradient_factor. Reads 2 bytes per 16-bit
// gradient. `ticket` is one word that is 0 before and after the
// launch.
struct GradientBuffers {
  const void* gradients = nullptr;
  StepState* state = nullptr;
  void* workspace = nullptr;
  std::uint32_t* ticket = nullptr;
};
std::size_t check_gradients_workspace(std::int64_t count, DType dtype);
void check_gradients(const GradientBuffers& buffers, std::int64_t count, DType dtype,
                     double clip_norm, cudaStream_t stream);
// Where each of `ranks` has the gradients of its share alone: `squares` becomes the sum of this
// rank's, which may be none; after an exchange one thread does the rest from those of all.
void sum_squares(const GradientBuffers& buffers, std::int64_t count, DType dtype, double* squares,
                 cudaStream_t stream);
void settle_squares(const double* squares, int ranks, double clip_norm, StepState* state,
                    cudaStream_t stream);

// An optimiser's coefficients for the kernel, each rounded to f32 once, at the same place as in the
// CPU backend.
struct UpdateRule {
  enum class Kind : std::uint8_t { sgd, momentum, nesterov, adam, rmsprop, rmsprop_momentum };
  Kind kind = Kind::sgd;
  float decay = 0;            // added to the gradient, times the parameter
  float decoupled_decay = 0;  // adamw: subtracted from the parameter, times the learning rate
  float momentum = 0;
  float one_minus_beta1 = 0, epsilon = 0;
  float beta2 = 0, one_minus_beta2 = 0;  // of the mean square; rmsprop's alpha
};
UpdateRule update_rule(const Optimizer& optimizer);

// One pass over `count` elements: multiplies the gradient by state->gradient_factor, updates the
// f32 parameter and its moments, and writes the copy if there is one. Does nothing if
// state->overflow is set or state->update is not. Gradients have the copies' dtype, or are sums in
// f32. 28 bytes per element for Adam with 16-bit gradients and copy, 20 with moments in bf16: bound
// by memory.
struct UpdateBuffers {
  float* parameters = nullptr;
  const void* gradients = nullptr;
  const StepState* state = nullptr;
  void* first = nullptr;  // moments; null where the optimiser has none
  void* second = nullptr;
  DType moments = DType::f32;  // or bf16, rounded at random
  std::int64_t place = 0;      // of the first element in the sections, a multiple of 4
  void* copy = nullptr;        // 16-bit, null in f32
  bool downwards = false;      // from the last block on
};
void update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
            DType gradients, DType copies, cudaStream_t stream);

// sums = share * gradients in the first micro step of an accumulation, else sums += share *
// gradients. 10 bytes per 16-bit element.
void accumulate(const void* gradients, float* sums, std::int64_t count, DType dtype, float share,
                const StepState* state, cudaStream_t stream);

// averages = decay * averages + (1 - decay) * parameters, if the step updates. 12 bytes per
// element.
void average(const float* parameters, float* averages, std::int64_t count, double decay,
             const StepState* state, cudaStream_t stream);

// Scales one parameter's gradient in place, see LarsScale: a launch for the norms, then one for the
// scaling, which sets state->overflow to 1 if a result is not finite. 16 bytes per 16-bit element.
// `workspace` has lars_workspace bytes; the next parameter may use the same one.
struct LarsRule {
  double trust = 0, decay = 0, epsilon = 0;
};
inline constexpr std::size_t lars_workspace = 64 * 2 * sizeof(double);
void lars(const LarsRule& rule, const float* parameters, void* gradients, std::int64_t count,
          DType dtype, StepState* state, void* workspace, cudaStream_t stream);

// Writes the step's report to its place in the ring: host memory that the device can write.
void report(const float* loss, const std::int32_t* correct, const StepState* state,
            StepReport* ring, cudaStream_t stream);

}  // namespace warpstep::cuda

// What ends and begins a step. The optimiser is one pass over all parameters, bound by memory: Adam
// with 16-bit gradients and copy moves 28 bytes an element (parameter and two moments both ways,
// gradient in, copy out), 0.17 ms for ResNet-50's 25.6 M at 4.3 TB/s; its arithmetic, some 60
// instructions an element with a root and a division, is a third of what that time allows.

#include "kernels/update/update.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

// Not cos(), whose reduction of large arguments keeps arrays in local memory.
__device__ inline double clock_cos_pi(double x) {
  return cospi(x);
}

#define STEP_CLOCK __device__ inline
#include "engine/graph/step_clock.inc"
#undef STEP_CLOCK

__global__ void __launch_bounds__(1)
    clock_kernel(Schedule schedule, double beta1, double beta2, LossScaling scaling,
                 std::int64_t accumulate, StepState* state) {
  state->begin_ns = device_time_ns();
  clock_tick(*state, schedule, beta1, beta2, scaling, accumulate);
}

// The host may look at the report as soon as its step number has changed: that is written last.
__global__ void __launch_bounds__(1) report_kernel(const float* loss, const std::int32_t* correct,
                                                   const StepState* state, StepReport* ring) {
  StepReport& to = ring[state->step % report_ring];
  to.loss = *loss;
  to.correct = correct != nullptr ? *correct : 0;
  to.learning_rate = state->learning_rate;
  to.loss_scale = state->loss_scale;
  to.skipped = state->skipped;
  to.overflow = state->overflow;
  to.gradient_norm = state->gradient_norm;
  to.begin_ns = state->begin_ns;
  to.end_ns = device_time_ns();
  __threadfence_system();
  *const_cast<volatile std::int64_t*>(&to.step) = state->step;
}

constexpr unsigned threads = 256;

using Kind = UpdateRule::Kind;

// What changes from step to step, a few instructions a thread.
struct Pace {
  float factor, rate, keep, root_scale;
};

template <Kind kind>
__device__ inline Pace pace(const UpdateRule& rule, const StepState& state) {
  const float rate = state.learning_rate;
  const float factor = state.gradient_factor;
  if constexpr (kind != Kind::adam) return {factor, rate, 1, 1};
  return {factor, rate / state.bias_correction1, 1 - rate * rule.decoupled_decay,
          1 / sqrtf(state.bias_correction2)};
}

// PyTorch's formulas, in f32: p the parameter, g its gradient, m and v its moments.
template <Kind kind>
__device__ inline void step(const UpdateRule& rule, const Pace& pace, float& p, float g, float& m,
                            float& v) {
  g = g * pace.factor + rule.decay * p;
  if constexpr (kind == Kind::sgd) {
    p -= pace.rate * g;
  } else if constexpr (kind == Kind::adam) {
    m += rule.one_minus_beta1 * (g - m);
    v = rule.beta2 * v + rule.one_minus_beta2 * (g * g);
    p = pace.keep * p - pace.rate * m / (sqrtf(v) * pace.root_scale + rule.epsilon);
  } else {
    m = rule.momentum * m + g;
    p -= pace.rate * (kind == Kind::nesterov ? g + rule.momentum * m : m);
  }
}

constexpr int quad =
    4;  // elements of a vector of f32: gradients come in 8 bytes where they are 16-bit

template <Kind kind>
inline constexpr bool has_first = kind != Kind::sgd;
template <Kind kind>
inline constexpr bool has_second = kind == Kind::adam;

// G: of gradients, C: of copies.
template <Kind kind, class G, class C>
__device__ inline void step_quad(const UpdateRule& rule, const Pace& pace,
                                 const UpdateBuffers& buffers, std::size_t i) {
  float p[quad], g[quad], m[quad] = {}, v[quad] = {};
  load(buffers.parameters + i, p);
  load(static_cast<const G*>(buffers.gradients) + i, g);
  if constexpr (has_first<kind>) load(buffers.first + i, m);
  if constexpr (has_second<kind>) load(buffers.second + i, v);
#pragma unroll
  for (int n = 0; n < quad; ++n) step<kind>(rule, pace, p[n], g[n], m[n], v[n]);
  store(buffers.parameters + i, p);
  if constexpr (has_first<kind>) store(buffers.first + i, m);
  if constexpr (has_second<kind>) store(buffers.second + i, v);
  if (buffers.copy != nullptr) store(static_cast<C*>(buffers.copy) + i, p);
}

template <Kind kind, class G, class C>
__device__ inline void step_one(const UpdateRule& rule, const Pace& pace,
                                const UpdateBuffers& buffers, std::size_t i) {
  float m = 0, v = 0;
  if constexpr (has_first<kind>) m = buffers.first[i];
  if constexpr (has_second<kind>) v = buffers.second[i];
  float& p = buffers.parameters[i];
  step<kind>(rule, pace, p, widen(static_cast<const G*>(buffers.gradients)[i]), m, v);
  if constexpr (has_first<kind>) buffers.first[i] = m;
  if constexpr (has_second<kind>) buffers.second[i] = v;
  if (buffers.copy != nullptr) static_cast<C*>(buffers.copy)[i] = narrow<C>(p);
}

// Four elements a thread: three loads of 16 bytes and one of 8 in flight, 56 bytes, so that the
// 1000 threads that 64 registers allow at the least have 56 KB in flight a multiprocessor.
template <Kind kind, class G, class C>
__global__ void __launch_bounds__(threads)
    update_kernel(UpdateRule rule, UpdateBuffers buffers, unsigned quads, unsigned rest) {
  if (buffers.state->overflow != 0 || buffers.state->update == 0) return;
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  const Pace now = pace<kind>(rule, *buffers.state);
  if (thread < quads) step_quad<kind, G, C>(rule, now, buffers, std::size_t{thread} * quad);
  if (thread < rest) step_one<kind, G, C>(rule, now, buffers, std::size_t{quads} * quad + thread);
}

template <class G, class C>
auto update_kernel_of(Kind kind) {
  switch (kind) {
    case Kind::sgd: break;
    case Kind::momentum: return update_kernel<Kind::momentum, G, C>;
    case Kind::nesterov: return update_kernel<Kind::nesterov, G, C>;
    case Kind::adam: return update_kernel<Kind::adam, G, C>;
  }
  return update_kernel<Kind::sgd, G, C>;
}

template <class G, class C>
void launch_update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
                   cudaStream_t stream) {
  if (count == 0) return;
  const unsigned quads = index32("update", "vectors of 4 elements", count / quad);
  launch("update", update_kernel_of<G, C>(rule.kind),
         {.grid = blocks_for(quads > 0 ? quads : 1, threads), .block = threads, .stream = stream},
         rule, buffers, quads, static_cast<unsigned>(count % quad));
}

}  // namespace

void clock(const Schedule& schedule, double beta1, double beta2, const LossScaling& scaling,
           std::int64_t accumulate, StepState* state, cudaStream_t stream) {
  launch("clock", clock_kernel, {.grid = 1, .block = 1, .stream = stream}, schedule, beta1, beta2,
         scaling, accumulate, state);
}

void update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
            DType gradients, DType copies, cudaStream_t stream) {
  dispatch("update", copies, [&]<class C>() {
    if (gradients == DType::f32) return launch_update<float, C>(rule, buffers, count, stream);
    if (gradients != copies) refuse_dtype("update", gradients);
    launch_update<C, C>(rule, buffers, count, stream);
  });
}

void report(const float* loss, const std::int32_t* correct, const StepState* state,
            StepReport* ring, cudaStream_t stream) {
  launch("report", report_kernel, {.grid = 1, .block = 1, .stream = stream}, loss, correct, state,
         ring);
}

// Whether a step's gradients are finite, and their norm, in one pass over them: 2 bytes a gradient
// of 16 bits, 51 MB, 12 us for ResNet-50. Sums in a fixed order: of a thread, a block, and of all
// blocks by the last of them.

namespace {


// The bits of an element in the low half of a word of 4 bytes, and of one in the high half (an f32
// fills both), that are all set in infinities and NaNs alone.
template <class T>
struct Exponent;
template <>
struct Exponent<float> {
  static constexpr unsigned low = 0x7f800000U, high = low;
};
template <>
struct Exponent<__half> {
  static constexpr unsigned low = 0x7c00U, high = low << 16;
};
template <>
struct Exponent<__nv_bfloat16> {
  static constexpr unsigned low = 0x7f80U, high = low << 16;
};

template <class T>
__device__ inline bool not_finite(unsigned word) {
  constexpr unsigned low = Exponent<T>::low, high = Exponent<T>::high;
  return (word & low) == low || (word & high) == high;
}
template <class T>
__device__ inline bool not_finite(const uint4& v) {
  return not_finite<T>(v.x) || not_finite<T>(v.y) || not_finite<T>(v.z) || not_finite<T>(v.w);
}

constexpr unsigned vectors_a_thread = 4;

// What the step makes of the sum of the squares, and of an overflow in any block.
__device__ inline void settle_norm(double squares, float clip_norm, StepState& state) {
  if (atomicAdd(&state.overflow, 0U) != 0 || state.update == 0) return;
  const double norm = sqrt(squares) / static_cast<double>(state.loss_scale);
  state.gradient_norm = static_cast<float>(norm);
  if (!(clip_norm > 0)) return;
  const double factor = static_cast<double>(clip_norm) / (norm + 1e-6);
  if (factor < 1) state.gradient_factor *= static_cast<float>(factor);
}

// Squares are summed in double: those of f32 and bf16 overflow in float.
template <class T>
__global__ void __launch_bounds__(threads)
    check_gradients_kernel(const T* __restrict__ gradients, unsigned vectors, unsigned rest,
                           float clip_norm, StepState* state, double* sums, std::uint32_t* ticket) {
  constexpr int width = vector_width<T>;
  const unsigned first = blockIdx.x * (threads * vectors_a_thread) + threadIdx.x;
  Packed<T, width> packed[vectors_a_thread];  // 0, which is finite, behind the end
#pragma unroll
  for (unsigned j = 0; j < vectors_a_thread; ++j) {
    const unsigned v = first + j * threads;
    if (v < vectors) packed[j] = read<width>(gradients + std::size_t{v} * width);
  }
  bool found = false;
  double sum = 0;
#pragma unroll
  for (unsigned j = 0; j < vectors_a_thread; ++j) {
    found = found || not_finite<T>(packed[j].word);
    float g[width];
    unpack(packed[j], g);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  }
  if (first < rest) {
    const float last = widen(gradients[std::size_t{vectors} * width + first]);
    found = found || !std::isfinite(last);
    sum += static_cast<double>(last) * static_cast<double>(last);
  }
  if (__any_sync(all_lanes, found) && threadIdx.x % warp_lanes == 0)
    atomicExch(&state->overflow, 1U);
  sum = block_reduce(sum, 0.0, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!last_block(ticket)) return;
  double total = 0;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += threads) total += sums[b];
  total = block_reduce(total, 0.0, Sum{});
  if (threadIdx.x == 0) settle_norm(total, clip_norm, *state);
}

unsigned vectors_of(std::int64_t count, DType dtype) {
  return index32("check_gradients", "vectors of 16 bytes",
                 count / static_cast<std::int64_t>(16 / size_bytes(dtype)));
}
unsigned blocks_of(unsigned vectors) {
  return blocks_for(vectors > 0 ? vectors : 1, threads * vectors_a_thread);
}

}  // namespace

std::size_t check_gradients_workspace(std::int64_t count, DType dtype) {
  return blocks_of(vectors_of(count, dtype)) * sizeof(double);
}

void check_gradients(const GradientBuffers& buffers, std::int64_t count, DType dtype,
                     double clip_norm, cudaStream_t stream) {
  dispatch("check_gradients", dtype, [&]<class T>() {
    if (count == 0) return;
    const unsigned vectors = vectors_of(count, dtype);
    launch("check_gradients", check_gradients_kernel<T>,
           {.grid = blocks_of(vectors), .block = threads, .stream = stream},
           static_cast<const T*>(buffers.gradients), vectors,
           static_cast<unsigned>(count % vector_width<T>), static_cast<float>(clip_norm),
           buffers.state, static_cast<double*>(buffers.workspace), buffers.ticket);
  });
}

}  // namespace warpstep::cuda

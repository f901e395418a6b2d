// The end and the beginning of a step, on the device:
//   clock            the state of the next step, one thread, bound by the launch
//   check_gradients  whether all gradients are finite, and their norm: one pass, bound by memory, 2
//                    bytes per 16-bit gradient: 51 MB, 12 us for ResNet-50. Sums in a fixed order:
//                    of a thread, of a block, then of all blocks by the last one to finish
//   update           the optimiser, one pass over all parameters, bound by memory: Adam with 16-bit
//                    gradients and copies moves 28 bytes per element (parameter and two moments in
//                    and out, gradient in, copy out), 0.17 ms for ResNet-50's 25.6 M at 4.3 TB/s.
//                    Its arithmetic, about 60 instructions per element with a root and a division,
//                    needs a third of that time; with moments in bf16 20 bytes, and some 30
//                    instructions more for their random bits: two thirds of 0.12 ms
//   report           one thread writes the step's report to the host
// Figures: bench/RECORDS.md.

#include <cmath>

#include "kernels/cuda/philox.cuh"
#include "kernels/update/update.cuh"

namespace warpstep::cuda {
namespace {

// cospi, not cos(): cos() reduces large arguments with arrays in local memory.
__device__ inline double clock_cos_pi(double x) {
  return cospi(x);
}

// A power in double takes one thread 1 us, and the whole step waits for the clock.
__device__ inline double clock_power(double log2_base, double n) {
  return exp2(n * log2_base);
}

#define STEP_CLOCK __device__ inline
#include "engine/graph/step_clock.inc"
#undef STEP_CLOCK

__global__ void __launch_bounds__(1)
    clock_kernel(Schedule schedule, double log2_beta1, double log2_beta2, LossScaling scaling,
                 std::int64_t accumulate, Replica replica, StepState* state) {
  await_previous();
  state->begin_ns = device_time_ns();
  clock_tick(*state, schedule, log2_beta1, log2_beta2, scaling, accumulate, replica);
}

// The host may read the report as soon as its step number has changed, so that is written last.
__global__ void __launch_bounds__(1) report_kernel(const float* loss, const std::int32_t* correct,
                                                   const StepState* state, StepReport* ring) {
  await_previous();
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

using Kind = UpdateRule::Kind;

template <Kind kind>
inline constexpr bool has_first = kind != Kind::sgd;
template <Kind kind>
inline constexpr bool has_second = kind == Kind::adam || kind == Kind::rmsprop_momentum;

// The random words of an update for the four elements from `place` of the sections on; none for
// moments of type float, which are not rounded.
template <class M>
__device__ inline uint4 random_of(const StepState& state, std::uint64_t place) {
  if constexpr (sizeof(M) == sizeof(float)) return {};
  const std::uint64_t index = place / quad;
  return random_words(static_cast<unsigned>(index), static_cast<unsigned>(index >> 32),
                      static_cast<unsigned>(state.update_index),
                      static_cast<unsigned>(Purpose::moments), static_cast<unsigned>(state.seed),
                      static_cast<unsigned>(state.seed >> 32));
}

// A moment as it is stored. Of an element's word the first moment takes the lower half, the second
// the upper one.
template <class M, int moment>
__device__ inline M rounded(float x, unsigned word) {
  if constexpr (sizeof(M) == sizeof(float))
    return x;
  else
    return narrow_at_random(x, moment == 0 ? word & 0xFFFFU : word >> 16);
}

template <class M, int moment>
__device__ inline void store_moment(void* to, std::size_t i, const float (&x)[quad],
                                    const uint4& words) {
  const M stored[quad]{rounded<M, moment>(x[0], words.x), rounded<M, moment>(x[1], words.y),
                       rounded<M, moment>(x[2], words.z), rounded<M, moment>(x[3], words.w)};
  Packed<M, quad> packed;
  std::memcpy(&packed.word, stored, sizeof stored);
  write(static_cast<M*>(to) + i, packed);
}

// G is the dtype of the gradients, C that of the copies, M that of the moments.
template <Kind kind, class G, class C, class M>
__device__ inline void step_quad(const UpdateRule& rule, const Coefficients& now,
                                 const UpdateBuffers& buffers, std::size_t i) {
  float p[quad], g[quad], m[quad] = {}, v[quad] = {};
  load(buffers.parameters + i, p);
  load(static_cast<const G*>(buffers.gradients) + i, g);
  if constexpr (has_first<kind>) load(static_cast<const M*>(buffers.first) + i, m);
  if constexpr (has_second<kind>) load(static_cast<const M*>(buffers.second) + i, v);
  const uint4 words = random_of<M>(*buffers.state, static_cast<std::uint64_t>(buffers.place) + i);
#pragma unroll
  for (int n = 0; n < quad; ++n) step<kind>(rule, now, p[n], g[n], m[n], v[n]);
  store(buffers.parameters + i, p);
  if constexpr (has_first<kind>) store_moment<M, 0>(buffers.first, i, m, words);
  if constexpr (has_second<kind>) store_moment<M, 1>(buffers.second, i, v, words);
  if (buffers.copy != nullptr) store(static_cast<C*>(buffers.copy) + i, p);
}

template <Kind kind, class G, class C, class M>
__device__ inline void step_one(const UpdateRule& rule, const Coefficients& now,
                                const UpdateBuffers& buffers, std::size_t i) {
  float m = 0, v = 0;
  if constexpr (has_first<kind>) m = widen(static_cast<const M*>(buffers.first)[i]);
  if constexpr (has_second<kind>) v = widen(static_cast<const M*>(buffers.second)[i]);
  float& p = buffers.parameters[i];
  step<kind>(rule, now, p, widen(static_cast<const G*>(buffers.gradients)[i]), m, v);
  const std::uint64_t place = static_cast<std::uint64_t>(buffers.place) + i;
  const uint4 words = random_of<M>(*buffers.state, place);
  const unsigned n = static_cast<unsigned>(place % quad), word = n == 0   ? words.x
                                                                 : n == 1 ? words.y
                                                                 : n == 2 ? words.z
                                                                          : words.w;
  if constexpr (has_first<kind>) static_cast<M*>(buffers.first)[i] = rounded<M, 0>(m, word);
  if constexpr (has_second<kind>) static_cast<M*>(buffers.second)[i] = rounded<M, 1>(v, word);
  if (buffers.copy != nullptr) static_cast<C*>(buffers.copy)[i] = narrow<C>(p);
}

// Four elements per thread: three loads of 16 bytes and one of 8 are 56 bytes in flight per thread,
// and at least 56 KB per multiprocessor with the 1000 threads that 64 registers allow.
template <Kind kind, class G, class C, class M>
__global__ void __launch_bounds__(update_threads)
    update_kernel(UpdateRule rule, UpdateBuffers buffers, unsigned quads, unsigned rest) {
  await_previous();
  if (!updates(*buffers.state)) return;
  const unsigned block = buffers.downwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const unsigned thread = block * update_threads + threadIdx.x;
  const Coefficients now = coefficients(rule, *buffers.state);
  if (thread < quads) step_quad<kind, G, C, M>(rule, now, buffers, std::size_t{thread} * quad);
  if (thread < rest)
    step_one<kind, G, C, M>(rule, now, buffers, std::size_t{quads} * quad + thread);
}

template <class G, class C, class M>
auto update_kernel_of(Kind kind) {
  switch (kind) {
    case Kind::sgd: break;
    case Kind::momentum: return update_kernel<Kind::momentum, G, C, M>;
    case Kind::nesterov: return update_kernel<Kind::nesterov, G, C, M>;
    case Kind::adam: return update_kernel<Kind::adam, G, C, M>;
    case Kind::rmsprop: return update_kernel<Kind::rmsprop, G, C, M>;
    case Kind::rmsprop_momentum: return update_kernel<Kind::rmsprop_momentum, G, C, M>;
  }
  return update_kernel<Kind::sgd, G, C, float>;
}

template <class G, class C>
void launch_update(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
                   cudaStream_t stream) {
  if (count == 0) return;
  const QuadExtent extent("update", count);
  const auto kernel = buffers.moments == DType::bf16
                          ? update_kernel_of<G, C, __nv_bfloat16>(rule.kind)
                          : update_kernel_of<G, C, float>(rule.kind);
  launch_next("update", kernel, {.grid = extent.blocks, .block = update_threads, .stream = stream},
              rule, buffers, extent.quads, extent.rest);
}

}  // namespace

void clock(const Schedule& schedule, double beta1, double beta2, const LossScaling& scaling,
           std::int64_t accumulate, const Replica& replica, StepState* state, cudaStream_t stream) {
  launch_next("clock", clock_kernel, {.grid = 1, .block = 1, .stream = stream}, schedule,
              std::log2(beta1), std::log2(beta2), scaling, accumulate, replica, state);
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
  launch_next("report", report_kernel, {.grid = 1, .block = 1, .stream = stream}, loss, correct,
              state, ring);
}

// check_gradients.

namespace {

// The exponent bits of the element in the low half of a 4-byte word, and of the one in the high
// half (an f32 fills both): only infinities and NaNs have all of them set.
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

constexpr unsigned vectors_per_thread = 4;
constexpr unsigned sums_ahead = 8;  // in flight; more would need more registers

// Stores the norm and the clipping factor, unless any block found an overflow.
__device__ inline void settle_norm(double squares, float clip_norm, StepState& state) {
  if (atomicAdd(&state.overflow, 0U) != 0 || state.update == 0) return;
  const double norm = sqrt(squares) / static_cast<double>(state.loss_scale);
  state.gradient_norm = static_cast<float>(norm);
  if (!(clip_norm > 0)) return;
  const double factor = static_cast<double>(clip_norm) / (norm + 1e-6);
  if (factor < 1) state.gradient_factor *= static_cast<float>(factor);
}

// Squares are summed in double: those of f32 and bf16 overflow in float. With `squares` that is
// all.
template <class T>
__global__ void __launch_bounds__(update_threads)
    check_gradients_kernel(const T* __restrict__ gradients, unsigned vectors, unsigned rest,
                           float clip_norm, StepState* state, double* sums, std::uint32_t* ticket,
                           double* squares) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned first = blockIdx.x * (update_threads * vectors_per_thread) + threadIdx.x;
  Packed<T, width> packed[vectors_per_thread];  // 0, which is finite, after the end
#pragma unroll
  for (unsigned j = 0; j < vectors_per_thread; ++j) {
    const unsigned v = first + j * update_threads;
    if (v < vectors) packed[j] = read<width>(gradients + std::size_t{v} * width);
  }
  bool found = false;
  double sum = 0;
#pragma unroll
  for (unsigned j = 0; j < vectors_per_thread; ++j) {
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
  if (squares == nullptr && __any_sync(all_lanes, found) && threadIdx.x % warp_lanes == 0)
    atomicExch(&state->overflow, 1U);
  sum = block_reduce(sum, 0.0, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!last_block(ticket)) return;
  double total = 0;
  for (unsigned begin = threadIdx.x; begin < gridDim.x; begin += sums_ahead * update_threads) {
    double part[sums_ahead];
#pragma unroll
    for (unsigned j = 0; j < sums_ahead; ++j) {
      const unsigned b = begin + j * update_threads;
      part[j] = b < gridDim.x ? sums[b] : 0;
    }
#pragma unroll
    for (unsigned j = 0; j < sums_ahead; ++j) total += part[j];
  }
  total = block_reduce(total, 0.0, Sum{});
  if (threadIdx.x > 0) return;
  if (squares != nullptr)
    *squares = total;
  else
    settle_norm(total, clip_norm, *state);
}

// The sum is finite exactly if all gradients are: squares of f32 do not overflow in double.
__global__ void __launch_bounds__(1)
    settle_squares_kernel(const double* squares, int ranks, float clip_norm, StepState* state) {
  double total = 0;
  for (int r = 0; r < ranks; ++r) total += squares[r];
  if (!std::isfinite(total)) state->overflow = 1;
  settle_norm(total, clip_norm, *state);
}

unsigned vectors_of(std::int64_t count, DType dtype) {
  return index32("check_gradients", "vectors of 16 bytes",
                 count / static_cast<std::int64_t>(16 / size_bytes(dtype)));
}
unsigned blocks_of(unsigned vectors) {
  return blocks_for(vectors > 0 ? vectors : 1, update_threads * vectors_per_thread);
}

}  // namespace

std::size_t check_gradients_workspace(std::int64_t count, DType dtype) {
  return blocks_of(vectors_of(count, dtype)) * sizeof(double);
}

namespace {

void launch_check(const GradientBuffers& buffers, std::int64_t count, DType dtype, double clip_norm,
                  double* squares, cudaStream_t stream) {
  dispatch("check_gradients", dtype, [&]<class T>() {
    const unsigned vectors = vectors_of(count, dtype);
    launch_next("check_gradients", check_gradients_kernel<T>,
                {.grid = blocks_of(vectors), .block = update_threads, .stream = stream},
                static_cast<const T*>(buffers.gradients), vectors,
                static_cast<unsigned>(count % vector_width<T>), static_cast<float>(clip_norm),
                buffers.state, static_cast<double*>(buffers.workspace), buffers.ticket, squares);
  });
}

}  // namespace

void check_gradients(const GradientBuffers& buffers, std::int64_t count, DType dtype,
                     double clip_norm, cudaStream_t stream) {
  if (count > 0) launch_check(buffers, count, dtype, clip_norm, nullptr, stream);
}

void sum_squares(const GradientBuffers& buffers, std::int64_t count, DType dtype, double* squares,
                 cudaStream_t stream) {
  launch_check(buffers, count, dtype, 0, squares, stream);
}

void settle_squares(const double* squares, int ranks, double clip_norm, StepState* state,
                    cudaStream_t stream) {
  launch("settle_squares", settle_squares_kernel, {.grid = 1, .block = 1, .stream = stream},
         squares, ranks, static_cast<float>(clip_norm), state);
}

}  // namespace warpstep::cuda

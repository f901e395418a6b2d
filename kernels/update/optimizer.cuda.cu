// The optional passes around the update: gradient accumulation, LARS, the moving average of the
// weights. Each is one pass over flat sections of the store (LARS: two over each parameter), bound
// by memory: 256 MB, 60 us, to accumulate ResNet-50's 25.6 M gradients. Figures: bench/RECORDS.md.
#include <cmath>

#include "kernels/update/update.cuh"

namespace warpstep::cuda {
namespace {

// to = f(to, from), an element each.
template <class From, class To, class F>
__device__ inline void combine(const From* from, To* to, unsigned quads, unsigned rest, F f) {
  const unsigned thread = blockIdx.x * update_threads + threadIdx.x;
  if (thread < quads) {
    const std::size_t i = std::size_t{thread} * quad;
    float x[quad], y[quad];
    load(from + i, x);
    load(to + i, y);
#pragma unroll
    for (int n = 0; n < quad; ++n) y[n] = f(y[n], x[n]);
    store(to + i, y);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    to[i] = narrow<To>(f(widen(to[i]), widen(from[i])));
  }
}

// The first sum of an update does not read what was there: it may contain infinities.
template <class T>
__global__ void __launch_bounds__(update_threads)
    accumulate_kernel(const T* __restrict__ gradients, float* __restrict__ sums, float share,
                      const StepState* state, unsigned quads, unsigned rest) {
  await_previous();
  const bool is_first = state->micro_step == 0;
  const unsigned thread = blockIdx.x * update_threads + threadIdx.x;
  if (thread < quads) {
    const std::size_t i = std::size_t{thread} * quad;
    float x[quad], y[quad] = {};
    load(gradients + i, x);
    if (!is_first) load(sums + i, y);
#pragma unroll
    for (int n = 0; n < quad; ++n) y[n] += share * x[n];
    store(sums + i, y);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    sums[i] = (is_first ? 0 : sums[i]) + share * widen(gradients[i]);
  }
}

__global__ void __launch_bounds__(update_threads)
    average_kernel(const float* __restrict__ parameters, float* __restrict__ averages, float share,
                   const StepState* state, unsigned quads, unsigned rest) {
  await_previous();
  if (!updates(*state)) return;
  // What does not change is its own average, whatever the share is rounded to.
  combine(parameters, averages, quads, rest,
          [share](float average, float x) { return average + share * (x - average); });
}

// Blocks for a parameter's norms; every block of the scaling kernel adds their partial sums.
constexpr unsigned most_norm_blocks = 64;
static_assert(most_norm_blocks <= update_threads &&
              lars_workspace >= most_norm_blocks * 2 * sizeof(double));

struct Squares {
  double parameter, gradient;
};

__device__ inline void add(Squares& sums, float w, float g) {
  sums.parameter += static_cast<double>(w) * static_cast<double>(w);
  sums.gradient += static_cast<double>(g) * static_cast<double>(g);
}

template <class T>
__global__ void __launch_bounds__(update_threads)
    lars_norms_kernel(const float* __restrict__ parameters, const T* __restrict__ gradients,
                      unsigned quads, unsigned rest, Squares* sums) {
  await_previous();
  Squares own{};
  const unsigned thread = blockIdx.x * update_threads + threadIdx.x;
  for (unsigned q = thread; q < quads; q += gridDim.x * update_threads) {
    float w[quad], g[quad];
    load(parameters + std::size_t{q} * quad, w);
    load(gradients + std::size_t{q} * quad, g);
#pragma unroll
    for (int n = 0; n < quad; ++n) add(own, w[n], g[n]);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    add(own, parameters[i], widen(gradients[i]));
  }
  own.parameter = block_reduce(own.parameter, 0.0, Sum{});
  own.gradient = block_reduce(own.gradient, 0.0, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = own;
}

template <class T>
__global__ void __launch_bounds__(update_threads)
    lars_scale_kernel(LarsRule rule, const float* __restrict__ parameters,
                      T* __restrict__ gradients, unsigned quads, unsigned rest, StepState* state,
                      const Squares* sums, unsigned blocks) {
  await_previous();
  if (state->update == 0) return;  // not after an overflow: another block may just have found one
  Squares own{};
  if (threadIdx.x < blocks) own = sums[threadIdx.x];
  // As lars_factor() of gradients.h, in double.
  const double used = static_cast<double>(state->gradient_factor);
  const double w_norm = sqrt(block_reduce(own.parameter, 0.0, Sum{}));
  const double g_norm = sqrt(block_reduce(own.gradient, 0.0, Sum{})) * used;
  if (w_norm == 0 || g_norm == 0) return;
  const auto factor =
      static_cast<float>(rule.trust * w_norm / (g_norm + rule.decay * w_norm + rule.epsilon));
  const auto decay = static_cast<float>(rule.decay / used);
  bool overflows = false;
  const auto scaled = [&](float g, float w) {
    const float value = factor * (g + decay * w);
    overflows = overflows || !std::isfinite(widen(narrow<T>(value)));
    return value;
  };
  combine(parameters, gradients, quads, rest, scaled);
  if (overflows) atomicExch(&state->overflow, 1U);
}

}  // namespace

void accumulate(const void* gradients, float* sums, std::int64_t count, DType dtype, float share,
                const StepState* state, cudaStream_t stream) {
  dispatch("accumulate", dtype, [&]<class T>() {
    const QuadExtent e("accumulate", count);
    launch_next("accumulate", accumulate_kernel<T>,
                {.grid = e.blocks, .block = update_threads, .stream = stream},
                static_cast<const T*>(gradients), sums, share, state, e.quads, e.rest);
  });
}

void average(const float* parameters, float* averages, std::int64_t count, double decay,
             const StepState* state, cudaStream_t stream) {
  const QuadExtent e("average", count);
  launch_next("average", average_kernel,
              {.grid = e.blocks, .block = update_threads, .stream = stream}, parameters, averages,
              static_cast<float>(1 - decay), state, e.quads, e.rest);
}

void lars(const LarsRule& rule, const float* parameters, void* gradients, std::int64_t count,
          DType dtype, StepState* state, void* workspace, cudaStream_t stream) {
  dispatch("lars", dtype, [&]<class T>() {
    const QuadExtent e("lars", count);
    const unsigned blocks = e.blocks < most_norm_blocks ? e.blocks : most_norm_blocks;
    auto* sums = static_cast<Squares*>(workspace);
    launch_next("lars norms", lars_norms_kernel<T>,
                {.grid = blocks, .block = update_threads, .stream = stream}, parameters,
                static_cast<const T*>(gradients), e.quads, e.rest, sums);
    launch_next("lars", lars_scale_kernel<T>,
                {.grid = e.blocks, .block = update_threads, .stream = stream}, rule, parameters,
                static_cast<T*>(gradients), e.quads, e.rest, state, sums, blocks);
  });
}

}  // namespace warpstep::cuda

// What stands beside the update: sums over steps, LARS, the average of the weights. Each is one
// pass over flat sections of the store, four elements a thread, and bound by memory: 256 MB, 60 us,
// for the sums of ResNet-50's 25.6 M gradients.
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/update/update.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int quad = 4;

__device__ inline bool updates(const StepState& state) {
  return state.overflow == 0 && state.update != 0;
}

// to = keep to + share from; without keep `to` is not read, as it may hold infinities.
template <class T>
__device__ inline void blend(const T* from, float* to, float share, float keep, unsigned quads,
                             unsigned rest) {
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  if (thread < quads) {
    const std::size_t i = std::size_t{thread} * quad;
    float x[quad], y[quad] = {};
    load(from + i, x);
    if (keep != 0) load(to + i, y);
#pragma unroll
    for (int n = 0; n < quad; ++n) y[n] = keep * y[n] + share * x[n];
    store(to + i, y);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    to[i] = (keep != 0 ? keep * to[i] : 0) + share * widen(from[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    accumulate_kernel(const T* __restrict__ gradients, float* __restrict__ sums, float share,
                      const StepState* state, unsigned quads, unsigned rest) {
  blend(gradients, sums, share, state->micro_step == 0 ? 0.0F : 1.0F, quads, rest);
}

__global__ void __launch_bounds__(threads)
    average_kernel(const float* __restrict__ parameters, float* __restrict__ averages, float share,
                   float decay, const StepState* state, unsigned quads, unsigned rest) {
  if (updates(*state)) blend(parameters, averages, share, decay, quads, rest);
}

// Blocks of a parameter's norms: each of the next kernel's blocks sums what they leave.
constexpr unsigned most_blocks = 64;
static_assert(most_blocks <= threads && lars_workspace >= most_blocks * 2 * sizeof(double));

struct Squares {
  double parameter, gradient;
};

__device__ inline void add(Squares& sums, float w, float g) {
  sums.parameter += static_cast<double>(w) * static_cast<double>(w);
  sums.gradient += static_cast<double>(g) * static_cast<double>(g);
}

template <class T>
__global__ void __launch_bounds__(threads)
    lars_norms_kernel(const float* __restrict__ parameters, const T* __restrict__ gradients,
                      unsigned quads, unsigned rest, Squares* sums) {
  Squares own{};
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  for (unsigned q = thread; q < quads; q += gridDim.x * threads) {
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

// The largest that T has: what is stored times the loss scale stays finite.
template <class T>
struct Largest {
  static constexpr float value = 3e38F;
};
template <>
struct Largest<__half> {
  static constexpr float value = 65504;
};

template <class T>
__global__ void __launch_bounds__(threads)
    lars_scale_kernel(LarsRule rule, const float* __restrict__ parameters,
                      T* __restrict__ gradients, unsigned quads, unsigned rest,
                      const StepState* state, const Squares* sums, unsigned blocks) {
  if (!updates(*state)) return;
  Squares own{};
  if (threadIdx.x < blocks) own = sums[threadIdx.x];
  const float w_norm = static_cast<float>(sqrt(block_reduce(own.parameter, 0.0, Sum{})));
  const float g_norm =
      static_cast<float>(sqrt(block_reduce(own.gradient, 0.0, Sum{}))) / state->loss_scale;
  if (w_norm == 0 || g_norm == 0) return;
  const float factor = rule.trust * w_norm / (g_norm + rule.decay * w_norm + rule.epsilon);
  const float decay = rule.decay * state->loss_scale;
  const auto scaled = [&](float g, float w) {
    return fmaxf(fminf(factor * (g + decay * w), Largest<T>::value), -Largest<T>::value);
  };
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  if (thread < quads) {
    const std::size_t i = std::size_t{thread} * quad;
    float w[quad], g[quad];
    load(parameters + i, w);
    load(gradients + i, g);
#pragma unroll
    for (int n = 0; n < quad; ++n) g[n] = scaled(g[n], w[n]);
    store(gradients + i, g);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    gradients[i] = narrow<T>(scaled(widen(gradients[i]), parameters[i]));
  }
}

struct Extent {
  Extent(const char* kernel, std::int64_t count)
      : quads(index32(kernel, "vectors of 4 elements", count / quad)),
        rest(static_cast<unsigned>(count % quad)),
        blocks(blocks_for(quads > 0 ? quads : 1, threads)) {}
  unsigned quads, rest, blocks;
};

}  // namespace

void accumulate(const void* gradients, float* sums, std::int64_t count, DType dtype, float share,
                const StepState* state, cudaStream_t stream) {
  dispatch("accumulate", dtype, [&]<class T>() {
    const Extent e("accumulate", count);
    launch("accumulate", accumulate_kernel<T>,
           {.grid = e.blocks, .block = threads, .stream = stream}, static_cast<const T*>(gradients),
           sums, share, state, e.quads, e.rest);
  });
}

void average(const float* parameters, float* averages, std::int64_t count, double decay,
             const StepState* state, cudaStream_t stream) {
  const Extent e("average", count);
  launch("average", average_kernel, {.grid = e.blocks, .block = threads, .stream = stream},
         parameters, averages, static_cast<float>(1 - decay), static_cast<float>(decay), state,
         e.quads, e.rest);
}

void lars(const LarsRule& rule, const float* parameters, void* gradients, std::int64_t count,
          DType dtype, const StepState* state, void* workspace, cudaStream_t stream) {
  dispatch("lars", dtype, [&]<class T>() {
    const Extent e("lars", count);
    const unsigned blocks = e.blocks < most_blocks ? e.blocks : most_blocks;
    auto* sums = static_cast<Squares*>(workspace);
    launch("lars norms", lars_norms_kernel<T>, {.grid = blocks, .block = threads, .stream = stream},
           parameters, static_cast<const T*>(gradients), e.quads, e.rest, sums);
    launch("lars", lars_scale_kernel<T>, {.grid = e.blocks, .block = threads, .stream = stream},
           rule, parameters, static_cast<T*>(gradients), e.quads, e.rest, state, sums, blocks);
  });
}

}  // namespace warpstep::cuda

// What a step is made of, for the host: sums over a block's output (one read of it) and over a
// parameter with its gradient, moments and update (16 bytes per element of Adam in f32). Bound by
// memory, and run by few steps: at most 256 blocks, each of which walks the elements. Sums are in
// f64; the last block to finish adds the blocks' in order and writes them to the host.
#include "kernels/statistics/statistics.cuda.h"

#include "kernels/update/update.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned most_statistics_blocks = 256;
static_assert(statistics_workspace >= most_statistics_blocks * 4 * sizeof(double));

struct Sums {
  double sum, squares, nonzero;
  float largest;
};

__device__ inline void add(Sums& sums, float x) {
  sums.sum += static_cast<double>(x);
  sums.squares += static_cast<double>(x) * static_cast<double>(x);
  sums.nonzero += x != 0 ? 1 : 0;
  sums.largest = fmaxf(sums.largest, fabsf(x));
}

__device__ inline Sums of_block(const Sums& own) {
  return {block_reduce(own.sum, 0.0, Sum{}), block_reduce(own.squares, 0.0, Sum{}),
          block_reduce(own.nonzero, 0.0, Sum{}), block_reduce(own.largest, 0.0F, Max{})};
}

__device__ inline double* row_of(const SumsPlace& to) {
  constexpr int fields = 7;  // of BlockSums
  return to.ring + ((to.state->step % report_ring) * to.blocks + to.block) * fields;
}

// Blocks are at most as many as the threads of the one that adds their sums.
static_assert(most_statistics_blocks <= update_threads);

template <class T>
__global__ void __launch_bounds__(update_threads)
    activation_statistics_kernel(const T* __restrict__ x, unsigned quads, unsigned rest,
                                 SumsPlace to) {
  Sums own{};
  const unsigned thread = blockIdx.x * update_threads + threadIdx.x;
  for (unsigned q = thread; q < quads; q += gridDim.x * update_threads) {
    float values[quad];
    load(x + std::size_t{q} * quad, values);
#pragma unroll
    for (int n = 0; n < quad; ++n) add(own, values[n]);
  }
  if (thread < rest) add(own, widen(x[std::size_t{quads} * quad + thread]));
  own = of_block(own);
  auto* partial = static_cast<Sums*>(to.workspace);
  if (threadIdx.x == 0) partial[blockIdx.x] = own;
  if (!last_block(to.ticket)) return;
  own = threadIdx.x < gridDim.x ? partial[threadIdx.x] : Sums{};
  own = of_block(own);
  if (threadIdx.x != 0) return;
  double* row = row_of(to);
  row[3] = own.sum;
  row[4] = own.squares;
  row[5] = static_cast<double>(own.largest);
  row[6] = own.nonzero;
}

struct UpdateSquares {
  double gradient, parameter, update;
};

__device__ inline UpdateSquares of_block(const UpdateSquares& own) {
  return {block_reduce(own.gradient, 0.0, Sum{}), block_reduce(own.parameter, 0.0, Sum{}),
          block_reduce(own.update, 0.0, Sum{})};
}

__device__ inline double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

// The kind of the rule is a value here, not a template's parameter: the branch costs nothing beside
// the reads.
__device__ inline void add(UpdateSquares& sums, const UpdateRule& rule, const Coefficients& now,
                           float p, float g, float m, float v) {
  using Kind = UpdateRule::Kind;
  float after = p;
  switch (rule.kind) {
    case Kind::sgd: step<Kind::sgd>(rule, now, after, g, m, v); break;
    case Kind::momentum: step<Kind::momentum>(rule, now, after, g, m, v); break;
    case Kind::nesterov: step<Kind::nesterov>(rule, now, after, g, m, v); break;
    case Kind::adam: step<Kind::adam>(rule, now, after, g, m, v); break;
    case Kind::rmsprop: step<Kind::rmsprop>(rule, now, after, g, m, v); break;
    case Kind::rmsprop_momentum: step<Kind::rmsprop_momentum>(rule, now, after, g, m, v); break;
  }
  sums.gradient += square(g);
  sums.parameter += square(p);
  sums.update += square(after - p);
}

// Elements [i, i + 4) of a moment, as floats.
__device__ inline void load_moment(const void* from, DType dtype, std::size_t i,
                                   float (&to)[quad]) {
  if (dtype == DType::bf16)
    load(static_cast<const __nv_bfloat16*>(from) + i, to);
  else
    load(static_cast<const float*>(from) + i, to);
}
__device__ inline float moment_at(const void* from, DType dtype, std::size_t i) {
  if (from == nullptr) return 0;
  return dtype == DType::bf16 ? widen(static_cast<const __nv_bfloat16*>(from)[i])
                              : static_cast<const float*>(from)[i];
}

template <class G>
__global__ void __launch_bounds__(update_threads)
    update_statistics_kernel(UpdateRule rule, UpdateBuffers buffers, unsigned quads, unsigned rest,
                             bool first, SumsPlace to) {
  UpdateSquares own{};
  const auto* gradients = static_cast<const G*>(buffers.gradients);
  const Coefficients now = coefficients(rule, *buffers.state);
  const unsigned thread = blockIdx.x * update_threads + threadIdx.x;
  for (unsigned q = thread; q < quads; q += gridDim.x * update_threads) {
    const std::size_t i = std::size_t{q} * quad;
    float p[quad], g[quad], m[quad] = {}, v[quad] = {};
    load(buffers.parameters + i, p);
    load(gradients + i, g);
    if (buffers.first != nullptr) load_moment(buffers.first, buffers.moments, i, m);
    if (buffers.second != nullptr) load_moment(buffers.second, buffers.moments, i, v);
#pragma unroll
    for (int n = 0; n < quad; ++n) add(own, rule, now, p[n], g[n], m[n], v[n]);
  }
  if (thread < rest) {
    const std::size_t i = std::size_t{quads} * quad + thread;
    add(own, rule, now, buffers.parameters[i], widen(gradients[i]),
        moment_at(buffers.first, buffers.moments, i),
        moment_at(buffers.second, buffers.moments, i));
  }
  own = of_block(own);
  auto* partial = static_cast<UpdateSquares*>(to.workspace);
  if (threadIdx.x == 0) partial[blockIdx.x] = own;
  if (!last_block(to.ticket)) return;
  own = threadIdx.x < gridDim.x ? partial[threadIdx.x] : UpdateSquares{};
  own = of_block(own);
  if (threadIdx.x != 0) return;
  const StepState& state = *buffers.state;
  const double scale = static_cast<double>(state.loss_scale);
  double* row = row_of(to);
  row[0] = (first ? 0 : row[0]) + own.gradient / (scale * scale);
  row[1] = (first ? 0 : row[1]) + own.parameter;
  row[2] = (first ? 0 : row[2]) + (updates(state) ? own.update : 0);
}

unsigned grid_of(const QuadExtent& extent) {
  return extent.blocks < most_statistics_blocks ? extent.blocks : most_statistics_blocks;
}

}  // namespace

void activation_statistics(const void* x, std::int64_t count, DType dtype, const SumsPlace& to,
                           cudaStream_t stream) {
  dispatch("activation_statistics", dtype, [&]<class T>() {
    const QuadExtent e("activation_statistics", count);
    launch("activation_statistics", activation_statistics_kernel<T>,
           {.grid = grid_of(e), .block = update_threads, .stream = stream},
           static_cast<const T*>(x), e.quads, e.rest, to);
  });
}

void update_statistics(const UpdateRule& rule, const UpdateBuffers& buffers, std::int64_t count,
                       DType gradients, bool first, const SumsPlace& to, cudaStream_t stream) {
  dispatch("update_statistics", gradients, [&]<class G>() {
    const QuadExtent e("update_statistics", count);
    launch("update_statistics", update_statistics_kernel<G>,
           {.grid = grid_of(e), .block = update_threads, .stream = stream}, rule, buffers, e.quads,
           e.rest, first, to);
  });
}

}  // namespace warpstep::cuda

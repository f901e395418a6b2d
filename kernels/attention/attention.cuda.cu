// Attention of our own, for every dtype, any mask and dropout, in f32 arithmetic without tensor
// cores. A warp computes a row of queries (or of keys, for their gradients) and meets the others in
// tiles of 32 in shared memory, a lane each; scores never leave registers and shared memory.
// Forward keeps each row's largest score and sum so far and rescales (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018). Bound by multiply-adds from shared memory: at
// most a few per cent of what tensor cores reach.
#include "kernels/attention/attention.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned row_warps = 4;  // rows of a block
constexpr unsigned tile_rows = warp_lanes;
constexpr unsigned most_features = most_attention_features;
constexpr unsigned lane_features = most_features / warp_lanes;

struct Heads {
  unsigned heads, length, features, strips;  // strips of row_warps rows in a sequence
  std::size_t qkv_pitch, o_pitch;
  unsigned channels;
  bool causal;
  float scale;
  std::uint32_t layer, threshold;  // of dropout: words whose upper 24 bits are below it drop
  float kept;                      // factor of what is kept; 1 without dropout
  std::uint64_t pairs;             // of positions, in all heads: the draws of a step

  // Where the rows of head `task` begin in rows of `pitch` elements.
  __device__ std::size_t offset(unsigned task, std::size_t pitch) const {
    return std::size_t{task / heads} * length * pitch + std::size_t{task % heads} * features;
  }
  __device__ bool sees(unsigned i, unsigned j) const {
    return i < length && j < length && (!causal || j <= i);
  }
};

// What dropout multiplies probability (i, j) of a head by.
__device__ inline float drop_factor(const Heads& h, const StepState* state, unsigned task,
                                    unsigned i, unsigned j) {
  if (state == nullptr) return 1;
  const std::uint64_t e = (static_cast<std::uint64_t>(state->draw) - 1) * h.pairs +  // first_draw()
                          (std::uint64_t{task} * h.length + i) * h.length + j;
  const uint4 words =
      random_words(static_cast<unsigned>(e / 4), static_cast<unsigned>(e / 4 >> 32), h.layer,
                   static_cast<unsigned>(Purpose::dropout), static_cast<unsigned>(state->seed),
                   static_cast<unsigned>(state->seed >> 32));
  const unsigned low = (e & 1) != 0 ? words.y : words.x, high = (e & 1) != 0 ? words.w : words.z;
  return ((e & 2) != 0 ? high : low) >> 8 >= h.threshold ? h.kept : 0;
}

// Rows in shared memory; the odd pitch spreads a column over the banks.
using SharedTile = float[tile_rows][most_features + 1];
using SharedRows = float[row_warps][most_features];

// Rows [first, first + tile_rows) of `from`; beyond the sequence they are 0.
template <class T>
__device__ inline void load_tile(const Heads& h, const T* from, std::size_t pitch, unsigned first,
                                 SharedTile& to) {
  for (unsigned at = threadIdx.x; at < tile_rows * h.features; at += blockDim.x) {
    const unsigned r = at / h.features, d = at % h.features;
    to[r][d] = first + r < h.length ? widen(from[(first + r) * pitch + d]) : 0;
  }
}

// Row `i` of `from` times `scale`, by the warp that it belongs to.
template <class T>
__device__ inline void load_row(const Heads& h, const T* from, std::size_t pitch, unsigned i,
                                float scale, float (&to)[most_features]) {
  for (unsigned d = threadIdx.x % warp_lanes; d < h.features; d += warp_lanes)
    to[d] = i < h.length ? widen(from[i * pitch + d]) * scale : 0;
}

__device__ inline float dot(const Heads& h, const float* a, const float* b) {
  float sum = 0;
  for (unsigned d = 0; d < h.features; ++d) sum += a[d] * b[d];
  return sum;
}

// A row of results, element lane + 32 r in register r.
struct LaneRow {
  float sums[lane_features] = {};

  __device__ void scale(float factor) {
#pragma unroll
    for (unsigned r = 0; r < lane_features; ++r) sums[r] *= factor;
  }
  // += factors [tile_rows] times the tile's rows.
  __device__ void add(const Heads& h, const float* factors, const SharedTile& tile) {
#pragma unroll
    for (unsigned r = 0; r < lane_features; ++r) {
      const unsigned d = threadIdx.x % warp_lanes + r * warp_lanes;
      if (d >= h.features) continue;
      for (unsigned j = 0; j < tile_rows; ++j) sums[r] += factors[j] * tile[j][d];
    }
  }
  template <class T>
  __device__ void store(const Heads& h, T* row, float factor) const {
#pragma unroll
    for (unsigned r = 0; r < lane_features; ++r) {
      const unsigned d = threadIdx.x % warp_lanes + r * warp_lanes;
      if (d < h.features) row[d] = narrow<T>(sums[r] * factor);
    }
  }
};

// The last head of a row writes the padding after it, which is zero.
template <class T>
__device__ inline void zero_padding(const Heads& h, unsigned task, T* row, std::size_t from,
                                    std::size_t pitch) {
  if (task % h.heads != h.heads - 1) return;
  for (std::size_t c = from + threadIdx.x % warp_lanes; c < pitch; c += warp_lanes)
    row[c] = narrow<T>(0.0F);
}

// A block's place: its head, the row of its warp, and how many rows of the others it meets.
struct RowPlace {
  unsigned task, warp, lane, row, first_row;
  __device__ explicit RowPlace(const Heads& h)
      : task(blockIdx.x / h.strips),
        warp(threadIdx.x / warp_lanes),
        lane(threadIdx.x % warp_lanes),
        row(blockIdx.x % h.strips * row_warps + warp),
        first_row(blockIdx.x % h.strips * row_warps) {}
  // Keys that one of the block's queries sees.
  __device__ unsigned keys(const Heads& h) const {
    const unsigned end = first_row + row_warps;
    return h.causal && end < h.length ? end : h.length;
  }
};

template <class T>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    attention_kernel(Heads h, const T* __restrict__ qkv, T* __restrict__ o,
                     float* __restrict__ statistics, const StepState* __restrict__ state) {
  __shared__ SharedTile keys, values;
  __shared__ SharedRows queries;
  __shared__ float probabilities[row_warps][tile_rows];
  const RowPlace at(h);
  const T* q = qkv + h.offset(at.task, h.qkv_pitch);
  load_row(h, q, h.qkv_pitch, at.row, h.scale, queries[at.warp]);
  float largest = -INFINITY, sum = 0;
  LaneRow result;
  for (unsigned j0 = 0; j0 < at.keys(h); j0 += tile_rows) {
    __syncthreads();
    load_tile(h, q + h.channels, h.qkv_pitch, j0, keys);
    load_tile(h, q + 2 * h.channels, h.qkv_pitch, j0, values);
    __syncthreads();
    const unsigned j = j0 + at.lane;
    const bool sees = h.sees(at.row, j);
    const float score = sees ? dot(h, queries[at.warp], keys[at.lane]) : -INFINITY;
    const float now = fmaxf(largest, group_reduce<warp_lanes>(score, Max{}));
    const float p = sees ? expf(score - now) : 0;
    const float factor = largest == -INFINITY ? 0 : expf(largest - now);
    sum = sum * factor + group_reduce<warp_lanes>(p, Sum{});
    largest = now;
    probabilities[at.warp][at.lane] = p * (sees ? drop_factor(h, state, at.task, at.row, j) : 0);
    __syncthreads();
    result.scale(factor);
    result.add(h, probabilities[at.warp], values);
  }
  if (at.row >= h.length) return;
  T* row = o + h.offset(at.task, h.o_pitch) + at.row * h.o_pitch;
  result.store(h, row, 1 / sum);
  zero_padding(h, at.task, row, h.features, h.o_pitch - h.channels + h.features);
  if (at.lane == 0) statistics[std::size_t{at.task} * h.length + at.row] = largest + logf(sum);
}

// means[task, i] = the sum over the row of d_o o.
template <class T>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    attention_means_kernel(Heads h, const T* __restrict__ d_o, const T* __restrict__ o,
                           float* __restrict__ means) {
  const RowPlace at(h);
  const std::size_t row = h.offset(at.task, h.o_pitch) + at.row * h.o_pitch;
  float sum = 0;
  if (at.row < h.length)
    for (unsigned d = at.lane; d < h.features; d += warp_lanes)
      sum += widen(d_o[row + d]) * widen(o[row + d]);
  sum = group_reduce<warp_lanes>(sum, Sum{});
  if (at.row < h.length && at.lane == 0) means[std::size_t{at.task} * h.length + at.row] = sum;
}

// What the two gradients know of a pair.
struct PairGradient {
  float dropped;  // the probability that multiplied the value
  float score;    // the gradient of q k before its scale
};
__device__ inline PairGradient pair_gradient(bool sees, float score, float d_p, float statistic,
                                             float mean, float factor) {
  if (!sees) return {0, 0};
  const float p = expf(score - statistic);
  return {p * factor, p * (factor * d_p - mean)};
}

template <class T>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    attention_query_grad_kernel(Heads h, const T* __restrict__ d_o, const T* __restrict__ qkv,
                                const float* __restrict__ statistics,
                                const float* __restrict__ means,
                                const StepState* __restrict__ state, T* __restrict__ d_qkv) {
  __shared__ SharedTile keys, values;
  __shared__ SharedRows queries, gradients;
  __shared__ float d_scores[row_warps][tile_rows];
  const RowPlace at(h);
  const T* q = qkv + h.offset(at.task, h.qkv_pitch);
  load_row(h, q, h.qkv_pitch, at.row, h.scale, queries[at.warp]);
  load_row(h, d_o + h.offset(at.task, h.o_pitch), h.o_pitch, at.row, 1, gradients[at.warp]);
  const std::size_t number = std::size_t{at.task} * h.length + at.row;
  const float statistic = at.row < h.length ? statistics[number] : 0;
  const float mean = at.row < h.length ? means[number] : 0;
  LaneRow result;
  for (unsigned j0 = 0; j0 < at.keys(h); j0 += tile_rows) {
    __syncthreads();
    load_tile(h, q + h.channels, h.qkv_pitch, j0, keys);
    load_tile(h, q + 2 * h.channels, h.qkv_pitch, j0, values);
    __syncthreads();
    const unsigned j = j0 + at.lane;
    const bool sees = h.sees(at.row, j);
    const float factor = sees ? drop_factor(h, state, at.task, at.row, j) : 0;
    d_scores[at.warp][at.lane] =
        pair_gradient(sees, dot(h, queries[at.warp], keys[at.lane]),
                      dot(h, gradients[at.warp], values[at.lane]), statistic, mean, factor)
            .score;
    __syncthreads();
    result.add(h, d_scores[at.warp], keys);
  }
  if (at.row >= h.length) return;
  T* row = d_qkv + h.offset(at.task, h.qkv_pitch) + at.row * h.qkv_pitch;
  result.store(h, row, h.scale);
  zero_padding(h, at.task, row, h.features + 2 * h.channels, h.qkv_pitch - h.channels + h.features);
}

template <class T>
__global__ void __launch_bounds__(row_warps* warp_lanes)
    attention_key_grad_kernel(Heads h, const T* __restrict__ d_o, const T* __restrict__ qkv,
                              const float* __restrict__ statistics, const float* __restrict__ means,
                              const StepState* __restrict__ state, T* __restrict__ d_qkv) {
  __shared__ SharedTile queries, gradients;
  __shared__ SharedRows keys, values;
  __shared__ float dropped[row_warps][tile_rows], d_scores[row_warps][tile_rows];
  const RowPlace at(h);  // its row is a key's
  const T* q = qkv + h.offset(at.task, h.qkv_pitch);
  load_row(h, q + h.channels, h.qkv_pitch, at.row, 1, keys[at.warp]);
  load_row(h, q + 2 * h.channels, h.qkv_pitch, at.row, 1, values[at.warp]);
  LaneRow d_key, d_value;
  for (unsigned i0 = h.causal ? at.first_row / tile_rows * tile_rows : 0; i0 < h.length;
       i0 += tile_rows) {
    __syncthreads();
    load_tile(h, q, h.qkv_pitch, i0, queries);
    load_tile(h, d_o + h.offset(at.task, h.o_pitch), h.o_pitch, i0, gradients);
    __syncthreads();
    const unsigned i = i0 + at.lane;
    const bool sees = h.sees(i, at.row);
    const std::size_t number = std::size_t{at.task} * h.length + (sees ? i : 0);
    const PairGradient pair =
        pair_gradient(sees, dot(h, queries[at.lane], keys[at.warp]) * h.scale,
                      dot(h, gradients[at.lane], values[at.warp]), statistics[number],
                      means[number], sees ? drop_factor(h, state, at.task, i, at.row) : 0);
    dropped[at.warp][at.lane] = pair.dropped;
    d_scores[at.warp][at.lane] = pair.score;
    __syncthreads();
    d_value.add(h, dropped[at.warp], gradients);
    d_key.add(h, d_scores[at.warp], queries);
  }
  if (at.row >= h.length) return;
  T* row = d_qkv + h.offset(at.task, h.qkv_pitch) + at.row * h.qkv_pitch;
  d_key.store(h, row + h.channels, h.scale);
  d_value.store(h, row + 2 * h.channels, 1);
}

Heads heads_of(const char* kernel, const AttentionShape& shape) {
  if (shape.features > most_attention_features)
    refuse_size(kernel, "features per head", shape.features, most_attention_features, 1);
  const std::uint32_t length = index32(kernel, "positions", shape.length);
  const double kept = 1 - shape.dropout;
  return {.heads = index32(kernel, "heads", shape.heads),
          .length = length,
          .features = static_cast<unsigned>(shape.features),
          .strips = blocks_for(length, row_warps),
          .qkv_pitch = static_cast<std::size_t>(shape.qkv_pitch),
          .o_pitch = static_cast<std::size_t>(shape.o_pitch),
          .channels = index32(kernel, "channels", shape.channels()),
          .causal = shape.causal,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.features))),
          .layer = shape.layer,
          .threshold = static_cast<std::uint32_t>(std::ceil(shape.dropout * 0x1p24)),
          .kept = static_cast<float>(1 / kept),
          .pairs = static_cast<std::uint64_t>(shape.tasks() * shape.length * shape.length)};
}

LaunchShape blocks_of(const char* kernel, const AttentionShape& shape, const Heads& h,
                      cudaStream_t stream) {
  return {.grid = index32(kernel, "strips of rows", shape.tasks() * std::int64_t{h.strips}),
          .block = row_warps * warp_lanes,
          .stream = stream};
}

}  // namespace

void attention(const AttentionShape& shape, const AttentionBuffers& b, DType dtype,
               cudaStream_t stream) {
  dispatch("attention", dtype, [&]<class T>() {
    const Heads h = heads_of("attention", shape);
    const LaunchShape grid = blocks_of("attention", shape, h, stream);
    if (shape.tasks() == 0) return;
    launch("attention", attention_kernel<T>, grid, h, static_cast<const T*>(b.qkv),
           static_cast<T*>(b.o), b.statistics, b.state);
  });
}

std::size_t attention_grad_workspace(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.tasks() * shape.length) * sizeof(float);
}

void attention_grad(const AttentionShape& shape, const AttentionGradBuffers& b, DType dtype,
                    cudaStream_t stream) {
  dispatch("attention_grad", dtype, [&]<class T>() {
    const Heads h = heads_of("attention_grad", shape);
    const LaunchShape grid = blocks_of("attention_grad", shape, h, stream);
    if (shape.tasks() == 0) return;
    const T *d_o = static_cast<const T*>(b.d_o), *qkv = static_cast<const T*>(b.qkv);
    T* d_qkv = static_cast<T*>(b.d_qkv);
    launch("attention_means", attention_means_kernel<T>, grid, h, d_o, static_cast<const T*>(b.o),
           b.means);
    launch("attention_query_grad", attention_query_grad_kernel<T>, grid, h, d_o, qkv, b.statistics,
           static_cast<const float*>(b.means), b.state, d_qkv);
    launch("attention_key_grad", attention_key_grad_kernel<T>, grid, h, d_o, qkv, b.statistics,
           static_cast<const float*>(b.means), b.state, d_qkv);
  });
}

}  // namespace warpstep::cuda

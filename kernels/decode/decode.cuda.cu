// Decoding one or a few tokens per sequence. The attention has a block per sequence and head, which
// reads that head's keys and values once, 512 bytes per position of a head of 64, in f32. At batch
// 1 a GPU has more multiprocessors than there are heads, so a kernel is bound by one
// multiprocessor's share of the memory's speed: simple, not the fastest. Several tokens of a
// sequence are computed one after the other. Not measured yet; figures go to bench/RECORDS.md.
#include "kernels/decode/decode.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned decode_threads = 256;
constexpr std::int64_t most_decoded_features = 5000;  // two rows of them in 48 KiB of shared memory

struct EmbedAtRows {
  std::uint32_t channels, sequence;
  std::int64_t table_row, positions_row;
};

// A block per token.
template <class T>
__global__ void __launch_bounds__(decode_threads)
    embed_at_kernel(const std::int32_t* __restrict__ tokens,
                    const std::int32_t* __restrict__ position, const T* __restrict__ table,
                    const T* __restrict__ positions, T* x, EmbedAtRows rows) {
  const unsigned n = blockIdx.x;
  const T* of_token = table + tokens[n] * rows.table_row;
  const T* of_position = positions + (*position + n % rows.sequence) * rows.positions_row;
  for (unsigned c = threadIdx.x; c < rows.channels; c += decode_threads)
    x[std::size_t{n} * rows.channels + c] = narrow<T>(widen(of_token[c]) + widen(of_position[c]));
}

struct CachedHeads {
  std::uint32_t sequence, positions, heads, features;
  std::int64_t qkv_row;
  float scale;

  __device__ std::size_t channels() const { return std::size_t{heads} * features; }
  __device__ std::size_t row() const { return 2 * channels(); }  // of the cache
};

__device__ inline float score_of(const float* q, const float* key, unsigned features) {
  float sum = 0;
  for (unsigned d = 0; d < features; ++d) sum += q[d] * key[d];
  return sum;
}

// A block per head of a sequence. Keys come in tiles of one per thread; after each tile what was
// summed so far is rescaled to the largest score so far. Feature d of the sums belongs to thread d
// % threads.
template <class T>
__global__ void __launch_bounds__(decode_threads)
    cached_attention_kernel(const T* __restrict__ qkv, float* cache,
                            const std::int32_t* __restrict__ position, T* o, CachedHeads heads) {
  const unsigned features = heads.features, head = blockIdx.x % heads.heads,
                 sequence = blockIdx.x / heads.heads, begin = *position;
  const std::size_t channels = heads.channels(), row = heads.row();
  float *q = dynamic_shared<float>(), *sums = q + features, *p = sums + features;
  const T* of_head = qkv + std::size_t{sequence} * heads.sequence * heads.qkv_row + head * features;
  float* keys = cache + std::size_t{sequence} * heads.positions * row + head * features;
  for (unsigned t = 0; t < heads.sequence; ++t)
    for (unsigned d = threadIdx.x; d < features; d += decode_threads) {
      const T* from = of_head + t * heads.qkv_row + channels + d;
      keys[(begin + t) * row + d] = widen(from[0]);
      keys[(begin + t) * row + channels + d] = widen(from[channels]);
    }
  for (unsigned t = 0; t < heads.sequence; ++t) {
    for (unsigned d = threadIdx.x; d < features; d += decode_threads) {
      q[d] = widen(of_head[t * heads.qkv_row + d]) * heads.scale;
      sums[d] = 0;
    }
    __syncthreads();  // the queries, and before the first row the block's own keys and values
    const unsigned visible = begin + t + 1;
    float most = -INFINITY, total = 0;
    for (unsigned first = 0; first < visible; first += decode_threads) {
      const unsigned j = first + threadIdx.x, count = min(decode_threads, visible - first);
      const float score = j < visible ? score_of(q, keys + j * row, features) : -INFINITY;
      const float largest = fmaxf(most, block_reduce(score, -INFINITY, Max()));
      const float rescaled = expf(most - largest), weight = expf(score - largest);
      p[threadIdx.x] = weight;
      total = total * rescaled + block_reduce(weight, 0.0F, Sum());
      for (unsigned d = threadIdx.x; d < features; d += decode_threads) {
        const float* values = keys + first * row + channels + d;
        float sum = sums[d] * rescaled;
        for (unsigned i = 0; i < count; ++i) sum += p[i] * values[i * row];
        sums[d] = sum;
      }
      most = largest;
    }
    T* to = o + (std::size_t{sequence} * heads.sequence + t) * channels + head * features;
    for (unsigned d = threadIdx.x; d < features; d += decode_threads)
      to[d] = narrow<T>(sums[d] / total);
  }
}

}  // namespace

void embed_at(const EmbedAtShape& shape, const std::int32_t* tokens, const std::int32_t* position,
              const void* table, const void* positions, void* x, DType dtype, cudaStream_t stream) {
  const unsigned blocks = index32("embed_at", "tokens", shape.tokens);
  const EmbedAtRows rows{.channels = index32("embed_at", "channels", shape.channels),
                         .sequence = index32("embed_at", "tokens of a sequence", shape.sequence),
                         .table_row = shape.table_row,
                         .positions_row = shape.positions_row};
  dispatch("embed_at", dtype, [&]<class T>() {
    launch("embed_at", embed_at_kernel<T>,
           {.grid = blocks, .block = decode_threads, .stream = stream}, tokens, position,
           static_cast<const T*>(table), static_cast<const T*>(positions), static_cast<T*>(x),
           rows);
  });
}

void cached_attention(const CachedAttentionShape& shape, const void* qkv, float* cache,
                      const std::int32_t* position, void* o, DType dtype, cudaStream_t stream) {
  const char* name = "cached_attention";
  if (shape.features > most_decoded_features)
    refuse_size(name, "features of a head", shape.features, most_decoded_features, 1);
  const unsigned blocks = index32(name, "heads of all sequences", shape.sequences * shape.heads);
  const CachedHeads heads{
      .sequence = index32(name, "tokens of a sequence", shape.sequence),
      .positions = index32(name, "positions", shape.positions),
      .heads = index32(name, "heads", shape.heads),
      .features = index32(name, "features of a head", shape.features),
      .qkv_row = shape.qkv_row,
      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.features)))};
  const std::size_t shared = (2 * heads.features + decode_threads) * sizeof(float);
  dispatch(name, dtype, [&]<class T>() {
    launch(name, cached_attention_kernel<T>,
           {.grid = blocks, .block = decode_threads, .shared_bytes = shared, .stream = stream},
           static_cast<const T*>(qkv), cache, position, static_cast<T*>(o), heads);
  });
}

}  // namespace warpstep::cuda

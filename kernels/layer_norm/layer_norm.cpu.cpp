// Layer norm and its adjoint on the CPU. Bound by memory: a row is read once and then stays in the
// first cache, where forward passes over it three times (the sum; the squares of deviations from
// the mean; y) and the adjoint twice (the two means; d_s, d_gamma and d_beta). Two rows at a time:
// more sums in flight, and half of the loads and stores of what belongs to the channels. Rows of
// 768 in memory take as long as a copy of what is read and written, 0.53 and 0.86 ns per element on
// one core of a Granite Rapids, rows in the first cache 0.15 and 0.27 ns.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/strided_tile.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t large_layer_norm = 16384;  // elements; from here on a team is faster

// Chunks of rows depend on the shape alone. One has an even number of rows, few enough to sum them
// in float; their sums are merged in double, in order.
struct LayerNormChunks {
  std::int64_t rows, channels;
  std::int64_t chunk_rows = std::clamp<std::int64_t>((rows / 64 + 1) / 2 * 2, 16, 128);
  std::int64_t count = (rows + chunk_rows - 1) / chunk_rows;

  bool large() const { return rows * channels > large_layer_norm; }
  std::int64_t begin(std::int64_t chunk) const { return chunk * chunk_rows; }
  std::int64_t end(std::int64_t chunk) const { return std::min(rows, (chunk + 1) * chunk_rows); }
};

template <class T>
struct LayerNormRows {
  const T *x, *shortcut;
  const float *gamma, *beta;
  T *y, *sum;
  float *mean, *inv_std;
  std::int64_t channels;
  float epsilon;
};

template <class T>
struct LayerNormGradRows {
  const T *d_y, *s, *second;
  const float *gamma, *mean, *inv_std;
  T* d_s;
  std::int64_t channels;
};

template <class T>
struct LayerNormLoops {
  // Rows [begin, end): by 2 * add + bias.
  void (*normalize[4])(const LayerNormRows<T>&, std::int64_t begin, std::int64_t end);
  // Rows [begin, end), adding to d_gamma and d_beta: by 2 * bias + sum.
  void (*gradients[4])(const LayerNormGradRows<T>&, float* d_gamma, float* d_beta,
                       std::int64_t begin, std::int64_t end);
};

namespace layer_norm {
#define WARPSTEP_SOURCE "kernels/layer_norm/layer_norm.inc"
#include "engine/core/each_set.inc"
}  // namespace layer_norm

template <class T>
const LayerNormLoops<T>& layer_norm_loops() {
  if constexpr (std::is_same_v<T, Bf16>)  // the backend has none without AVX-512
    return layer_norm::avx512::loops<T>;
  else
    return of_isa(layer_norm::avx512::loops<T>, layer_norm::avx2::loops<T>,
                  layer_norm::plain::loops<T>);
}

}  // namespace

std::unique_ptr<Kernel> bind(const LayerNorm& op, const Operands& operands) {
  const LayerNormChunks chunks{operands.in_shape(0)[0], operands.in_shape(0)[1]};
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    return host_kernel(
        "vector loops", [op, chunks, loop = layer_norm_loops<T>().normalize[2 * op.add + op.bias]](
                            const Buffers& b) {
          const LayerNormRows<T> rows{.x = as<T>(b.in[0]),
                                      .shortcut = op.add ? as<T>(b.in.back()) : nullptr,
                                      .gamma = as<float>(b.in[1]),
                                      .beta = op.bias ? as<float>(b.in[2]) : nullptr,
                                      .y = as<T>(b.out[0]),
                                      .sum = op.add ? as<T>(b.out[3]) : nullptr,
                                      .mean = as<float>(b.out[1]),
                                      .inv_std = as<float>(b.out[2]),
                                      .channels = chunks.channels,
                                      .epsilon = static_cast<float>(op.epsilon)};
#pragma omp parallel for schedule(static) if (chunks.large())
          for (std::int64_t k = 0; k < chunks.count; ++k)
            loop(rows, chunks.begin(k), chunks.end(k));
        });
  });
}

// The adjoint.

namespace {

// The workspace: for each chunk the sums of d_gamma and then, with a bias, of d_beta.
struct LayerNormParts {
  LayerNormChunks chunks;
  std::int64_t kinds;

  std::int64_t width() const { return (chunks.channels + 15) / 16 * 16; }
  std::size_t bytes() const { return idx(chunks.count * kinds * width()) * sizeof(float); }
  float* part(void* workspace, std::int64_t chunk, std::int64_t kind) const {
    return as<float>(workspace) + (chunk * kinds + kind) * width();
  }
  template <class T>
  void merge(void* workspace, std::int64_t kind, T* sums) const;
};

template <class T>
void LayerNormParts::merge(void* workspace, std::int64_t kind, T* sums) const {
  constexpr std::int64_t panel = 64;
  for (std::int64_t first = 0; first < chunks.channels; first += panel) {
    const std::int64_t here = std::min(panel, chunks.channels - first);
    std::array<double, panel> total{};
    for (std::int64_t k = 0; k < chunks.count; ++k)
      for (std::int64_t c = 0; c < here; ++c)
        total[idx(c)] += static_cast<double>(part(workspace, k, kind)[first + c]);
    for (std::int64_t c = 0; c < here; ++c)
      sums[first + c] = rounded_to<T>(static_cast<float>(total[idx(c)]));
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const LayerNormGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  const LayerNormChunks chunks{operands.in_shape(0)[0], operands.in_shape(0)[1]};
  const LayerNormParts parts{chunks, op.bias ? 2 : 1};
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    return host_kernel(
        "vector loops",
        [op, chunks, parts,
         loop = layer_norm_loops<T>().gradients[2 * op.bias + op.sum]](const Buffers& b) {
          const LayerNormGradRows<T> rows{.d_y = as<T>(b.in[0]),
                                          .s = as<T>(b.in[1]),
                                          .second = op.sum ? as<T>(b.in[5]) : nullptr,
                                          .gamma = as<float>(b.in[2]),
                                          .mean = as<float>(b.in[3]),
                                          .inv_std = as<float>(b.in[4]),
                                          .d_s = as<T>(b.out[0]),
                                          .channels = chunks.channels};
#pragma omp parallel for schedule(static) if (chunks.large())
          for (std::int64_t k = 0; k < chunks.count; ++k) {
            float* d_gamma = parts.part(b.workspace, k, 0);
            float* d_beta = parts.part(b.workspace, k, op.bias ? 1 : 0);
            std::fill_n(d_gamma, parts.kinds * parts.width(), 0.0F);
            loop(rows, d_gamma, d_beta, chunks.begin(k), chunks.end(k));
          }
          for (std::int64_t kind = 0; kind < parts.kinds; ++kind)
            parts.merge(b.workspace, kind, as<T>(b.out[idx(1 + kind)]));
        },
        parts.bytes());
  });
}

}  // namespace warpstep::cpu

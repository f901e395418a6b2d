// Shared by the adjoints of batch norm, alone and with the pool after it: the sums over the rows
// that the first pass ends in, and what the second makes of them.
#pragma once

#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

// The coefficients of d_x = scale (g - shift - slope (x - mean)).
struct Slopes {
  float *scale, *shift, *slope;  // [channels]
};

// What one norm's sums are made with, and become.
template <class T>
struct NormSums {
  const float *gamma, *mean, *inv_std;
  T *d_gamma, *d_beta;
  Slopes slopes;
};

template <class T>
struct SumsTo {
  NormSums<T> norm, shortcut;  // the latter of both norms alone
  T* d_shortcut;
  OfRanks of_ranks;
};

// Writes the slopes of one channel: with n rows, shift = sum g / n and slope = inv_std^2 sum g (x -
// mean) / n.
__device__ inline void write_slopes(const Slopes& to, const float* gamma, const float* inv_stds,
                                    float count, std::size_t channel, float sum, float product) {
  const float inv_std = inv_stds[channel];
  to.scale[channel] = gamma[channel] * inv_std;
  to.shift[channel] = sum / count;
  to.slope[channel] = product / count * inv_std * inv_std;
}

template <class T>
__device__ inline void write_sums(const NormSums<T>& to, const OfRanks& of_ranks, unsigned rows,
                                  std::size_t channel, float sum, float product) {
  to.d_beta[channel] = narrow<T>(sum);
  to.d_gamma[channel] = narrow<T>(product * to.inv_std[channel]);
  if (of_ranks.memory == nullptr) {
    write_slopes(to.slopes, to.gamma, to.inv_std, static_cast<float>(rows), channel, sum, product);
  } else {
    of_ranks.of(of_ranks.own, 0, channel) = sum;
    of_ranks.of(of_ranks.own, 1, channel) = product;
  }
}

// The end of the first pass, from each thread's sums of its column: those of the blocks, and by the
// last of them d_gamma, d_beta and the slopes. `rows` are the norm's. The whole grid calls it.
template <bool both, class T, int width>
__device__ inline void finish_norm_sums(const NormRows& matrix, unsigned rows,
                                        const NormPartials& partials, const SumsTo<T>& to,
                                        float (&sum)[width], float (&product)[width],
                                        float (&shortcut_product)[width]) {
  const std::size_t own = std::size_t{matrix.column()} * width;
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  sum_column(sum, place);
  sum_column(product, place);
  if constexpr (both) sum_column(shortcut_product, place);
  if (threadIdx.y == 0 && matrix.column() < matrix.columns) {
    store_quads(partials.of(matrix, blockIdx.x, 0, own), sum);
    store_quads(partials.of(matrix, blockIdx.x, 1, own), product);
    if constexpr (both)
      store_quads(partials.of(matrix, gridDim.x + blockIdx.x, 0, own), shortcut_product);
  }
  if (!last_block(partials.tickets + blockIdx.y, gridDim.x)) return;

  const LastPlace last(matrix, width);
  float sums[4] = {}, products[4] = {}, shortcut_products[4] = {};
  if (last.active) {
    const std::size_t pitch = 2 * std::size_t{matrix.channels};
    add_rows<float>(partials.of(matrix, 0, 0, last.channel), pitch, 0, gridDim.x, last.place, sums);
    add_rows<float>(partials.of(matrix, 0, 1, last.channel), pitch, 0, gridDim.x, last.place,
                    products);
    if constexpr (both)
      add_rows<float>(partials.of(matrix, gridDim.x, 0, last.channel), pitch, 0, gridDim.x,
                      last.place, shortcut_products);
  }
  sum_column(sums, last.place);
  sum_column(products, last.place);
  if constexpr (both) sum_column(shortcut_products, last.place);
  if (!last.active || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    write_sums(to.norm, to.of_ranks, rows, last.channel + i, sums[i], products[i]);
    if constexpr (both)
      write_sums(to.shortcut, to.of_ranks, rows, last.channel + i, sums[i], shortcut_products[i]);
  }
}

// The coefficients of one column vector's channels.
template <int width>
struct Line {
  float mean[width] = {}, scale[width] = {}, shift[width] = {}, slope[width] = {};

  __device__ void load(const float* means, const Slopes& slopes, std::size_t channel) {
    load_quads(means + channel, mean);
    load_quads(slopes.scale + channel, scale);
    load_quads(slopes.shift + channel, shift);
    load_quads(slopes.slope + channel, slope);
  }
  template <class T>
  __device__ void store_gradient(T* to, const float (&g)[width],
                                 const Packed<T, width>& loaded) const {
    float x[width];
    unpack(loaded, x);
#pragma unroll
    for (int i = 0; i < width; ++i)
      x[i] = scale[i] * fmaf(mean[i] - x[i], slope[i], g[i] - shift[i]);
    store(to, x);
  }
};

// The workspace: partial sums, those of all ranks, and the slopes; of both norms twice the first
// and the last.
struct GradSpace {
  std::size_t slopes, floats;  // where they begin, and all

  GradSpace(const NormShape& shape, DType dtype, bool both)
      : slopes((both ? 2 : 1) * partial_floats(shape, dtype) + rank_floats(shape)),
        floats(slopes + (both ? 6 : 3) * static_cast<std::size_t>(shape.channels)) {}

  Slopes of_norm(void* workspace, const NormShape& shape) const {
    float* memory = static_cast<float*>(workspace) + slopes;
    return {memory, memory + shape.channels, memory + 2 * shape.channels};
  }
  Slopes of_shortcut(void* workspace, const NormShape& shape) const {
    return of_norm(static_cast<float*>(workspace) + 3 * shape.channels, shape);
  }
};

}  // namespace
}  // namespace warpstep::cuda

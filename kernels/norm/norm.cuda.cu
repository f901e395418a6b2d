// Batch norms forward: bound by memory. Training reads x twice, as no kernel can know the
// statistics before, and writes y: ResNet-50's stem at 224, 256x112x112x64 in f16, is 411 MB a
// pass, 0.29 ms; with a shortcut one pass more. Inference reads x once. Not yet run on a GPU;
// shares of the peak go to bench/RECORDS.md.

#include <cmath>

#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

// Of some numbers: how many, their mean and the sum of squared distances from it. Means are
// distances, too, from the channel's number in the first row: mergers round them by what the
// channel's numbers differ, not by what they are.
template <int width>
struct Moments {
  float count = 0;
  float mean[width] = {}, spread[width] = {};

  // Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979.
  __device__ void merge(float others, const float (&other_mean)[width],
                        const float (&other_spread)[width]) {
    if (others == 0) return;
    const float all = count + others, share = others / all;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float apart = other_mean[i] - mean[i];
      mean[i] += apart * share;
      spread[i] += other_spread[i] + apart * apart * (count * share);
    }
    count = all;
  }
};

// Merges the threads of each column, as a tree over the rows: in row 0 when it returns. The whole
// block calls it.
template <int width>
__device__ inline void merge_column(Moments<width>& moments, const Place& at) {
  __shared__ float4 means[width / 4][norm_threads / 2], spreads[width / 4][norm_threads / 2];
  __shared__ float counts[norm_threads / 2];
  __syncthreads();  // readers of an earlier call have left
  for (unsigned live = at.rows; live > 1;) {
    const unsigned half = (live + 1) / 2;
    if (at.row >= half && at.row < live) {
      const unsigned to = (at.row - half) * at.columns + at.column;
      counts[to] = moments.count;
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const float *m = moments.mean + 4 * i, *s = moments.spread + 4 * i;
        means[i][to] = make_float4(m[0], m[1], m[2], m[3]);
        spreads[i][to] = make_float4(s[0], s[1], s[2], s[3]);
      }
    }
    __syncthreads();
    if (at.row < live - half) {
      const unsigned from = at.row * at.columns + at.column;
      float mean[width], spread[width];
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const float4 m = means[i][from], s = spreads[i][from];
        mean[4 * i] = m.x, mean[4 * i + 1] = m.y, mean[4 * i + 2] = m.z, mean[4 * i + 3] = m.w;
        spread[4 * i] = s.x, spread[4 * i + 1] = s.y, spread[4 * i + 2] = s.z,
                   spread[4 * i + 3] = s.w;
      }
      moments.merge(counts[from], mean, spread);
    }
    __syncthreads();
    live = half;
  }
}

constexpr unsigned at_once = 4;   // rows whose loads are in flight
constexpr unsigned resident = 3;  // blocks a multiprocessor

// What a thread has of its column. It measures from the first number that it sees: sums of squares
// lose nothing to a mean far from 0, and to an outlier no more than it adds to the variance itself.
template <class T, int width>
__device__ inline Moments<width> own_moments(const T* __restrict__ x, const NormRows& matrix) {
  float origin[width] = {}, sum[width] = {}, squares[width] = {};
  unsigned count = 0;
  Packed<T, width> packed[at_once];
  walk<width, at_once, true>(
      matrix, [&](unsigned j, std::size_t place) { packed[j] = read<width>(x + place); },
      [&](unsigned j, std::size_t) {
        float v[width];
        unpack(packed[j], v);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          if (count == 0) origin[i] = v[i];
          const float apart = v[i] - origin[i];
          sum[i] += apart;
          squares[i] = fmaf(apart, apart, squares[i]);
        }
        ++count;
      });
  Moments<width> moments;
  if (count == 0) return moments;
  moments.count = static_cast<float>(count);
  float first_row[width];
  load(x + std::size_t{matrix.column()} * width, first_row);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float mean = sum[i] / moments.count;
    const float spread = squares[i] - mean * sum[i];
    moments.mean[i] = (origin[i] - first_row[i]) + mean;
    moments.spread[i] = spread < 0 ? 0 : spread;  // a NaN stays
  }
  return moments;
}

struct Statistics {
  float *mean, *inv_std, *running_mean, *running_var;
  float epsilon;
  double momentum;
};

// Of a channel; beyond the real ones everything stays 0. The running statistics add up what every
// step rounds, and so a few numbers move in double.
__device__ inline void write_statistics(const Statistics& to, const NormRows& matrix,
                                        std::size_t channel, float mean, float spread) {
  const bool real = channel < matrix.real;
  const auto count = static_cast<float>(matrix.rows);
  to.mean[channel] = real ? mean : 0;
  to.inv_std[channel] = real ? 1 / sqrtf(spread / count + to.epsilon) : 0;
  if (!real) return;
  const double old_mean = to.running_mean[channel], old_var = to.running_var[channel];
  const double var = static_cast<double>(spread) / (static_cast<double>(matrix.rows) - 1);
  to.running_mean[channel] = static_cast<float>(old_mean + to.momentum * (mean - old_mean));
  to.running_var[channel] = static_cast<float>(old_var + to.momentum * (var - old_var));
}

// The first pass over x. 5 instructions an element: half of what its two bytes allow.
template <class T>
__global__ void __launch_bounds__(norm_threads, resident)
    batch_norm_statistics(const T* __restrict__ x, NormRows matrix, NormPartials partials,
                          Statistics to) {
  constexpr int width = vector_width<T>;
  Moments<width> moments = own_moments<T, width>(x, matrix);
  merge_column(moments, Place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y});
  if (threadIdx.y == 0 && matrix.column() < matrix.columns) {
    const std::size_t channel = std::size_t{matrix.column()} * width;
    store_quads(partials.of(matrix, blockIdx.x, 0, channel), moments.mean);
    store_quads(partials.of(matrix, blockIdx.x, 1, channel), moments.spread);
  }
  if (!last_block(partials.tickets + blockIdx.y, gridDim.x)) return;

  const LastPlace last(matrix, width);
  Moments<4> total;
  const unsigned blocks = last.mine ? gridDim.x : 0;
#pragma unroll 4
  for (unsigned block = last.place.row; block < blocks; block += last.place.rows) {
    float mean[4], spread[4];
    load(partials.of(matrix, block, 0, last.channel), mean);
    load(partials.of(matrix, block, 1, last.channel), spread);
    total.merge(static_cast<float>(matrix.rows_of(block, at_once)), mean, spread);
  }
  merge_column(total, last.place);
  if (!last.mine || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_statistics(to, matrix, last.channel + i, widen(x[last.channel + i]) + total.mean[i],
                     total.spread[i]);
}

// What y is made of: (x - mean) * scale + beta, which loses nothing where the mean is large.
struct Channels {
  const float *gamma, *beta, *mean;
  const float* spread;  // in training inv_std, else the running variance
  float epsilon;
};

template <bool training, int width>
struct OwnChannels {
  float mean[width] = {}, scale[width] = {}, beta[width] = {};

  __device__ OwnChannels(const Channels& from, const NormRows& matrix) {
    if (matrix.column() >= matrix.columns) return;
    const std::size_t channel = std::size_t{matrix.column()} * width;
    float spread[width] = {};
    load_quads(from.gamma + channel, scale);
    load_quads(from.beta + channel, beta);
    if constexpr (training) {
      load_quads(from.mean + channel, mean);
      load_quads(from.spread + channel, spread);
    }
#pragma unroll
    for (unsigned i = 0; i < width; ++i) {
      if (!training && channel + i < matrix.real) {
        mean[i] = from.mean[channel + i];
        spread[i] = 1 / sqrtf(from.spread[channel + i] + from.epsilon);
      }
      scale[i] *= spread[i];
    }
  }
};

// The second pass over x, or inference's only one.
template <class T, bool training, bool adds>
__global__ void __launch_bounds__(norm_threads, resident)
    batch_norm_pass(const T* __restrict__ x, const T* __restrict__ shortcut, T* __restrict__ y,
                    NormRows matrix, Channels channels, bool relu) {
  constexpr int width = vector_width<T>;
  const OwnChannels<training, width> own(channels, matrix);
  Packed<T, width> from_x[at_once], from_shortcut[at_once];
  walk<width, at_once, false>(
      matrix,
      [&](unsigned j, std::size_t place) {
        from_x[j] = read<width>(x + place);
        if constexpr (adds) from_shortcut[j] = read<width>(shortcut + place);
      },
      [&](unsigned j, std::size_t place) {
        float v[width], added[width] = {};
        unpack(from_x[j], v);
        if constexpr (adds) unpack(from_shortcut[j], added);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          v[i] = fmaf(v[i] - own.mean[i], own.scale[i], own.beta[i]);
          if constexpr (adds) v[i] += added[i];
          if (relu) v[i] = v[i] > 0 ? v[i] : 0;
        }
        store(y + place, v);
      });
}

template <class T, bool training>
void launch_pass(const NormRows& matrix, const NormBuffers& buffers, const Channels& channels,
                 bool relu, cudaStream_t stream) {
  const auto kernel = buffers.shortcut != nullptr ? batch_norm_pass<T, training, true>
                                                  : batch_norm_pass<T, training, false>;
  launch("batch_norm", kernel,
         norm_launch(matrix, norm_pass_blocks(matrix, at_once, resident), stream),
         static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.shortcut),
         static_cast<T*>(buffers.y), matrix, channels, relu);
}

template <class T>
void launch_trained(const NormRows& matrix, const NormShape& shape, const NormBuffers& buffers,
                    cudaStream_t stream) {
  launch_pass<T, true>(matrix, buffers,
                       {buffers.gamma, buffers.beta, buffers.mean, buffers.inv_std, 0}, shape.relu,
                       stream);
}

bool is_empty(const NormShape& shape) {
  return shape.rows == 0 || shape.channels == 0;
}

}  // namespace

std::size_t batch_norm_tickets(const NormShape& shape, DType dtype) {
  const std::size_t across = norm_columns * 16 / size_bytes(dtype);
  return (static_cast<std::size_t>(shape.channels) + across - 1) / across;
}

std::size_t batch_norm_workspace(const NormShape& shape, DType dtype) {
  return norm_sum_blocks(shape.rows, shape.channels, dtype) * 2 *
         static_cast<std::size_t>(shape.channels) * sizeof(float);
}

void batch_norm(const NormShape& shape, const NormBuffers& buffers, DType dtype, void* workspace,
                std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("batch_norm", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm", shape);
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch("batch_norm_statistics", batch_norm_statistics<T>, norm_launch(matrix, blocks, stream),
           static_cast<const T*>(buffers.x), matrix,
           NormPartials{static_cast<float*>(workspace), tickets},
           Statistics{buffers.mean, buffers.inv_std, buffers.running_mean, buffers.running_var,
                      shape.epsilon, shape.momentum});
    launch_trained<T>(matrix, shape, buffers, stream);
  });
}

void batch_norm_apply(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                      cudaStream_t stream) {
  dispatch("batch_norm", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    launch_trained<T>(norm_rows<T>("batch_norm", shape), shape, buffers, stream);
  });
}

void batch_norm_inference(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                          cudaStream_t stream) {
  dispatch("batch_norm", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    launch_pass<T, false>(
        norm_rows<T>("batch_norm", shape), buffers,
        {buffers.gamma, buffers.beta, buffers.running_mean, buffers.running_var, shape.epsilon},
        shape.relu, stream);
  });
}

// The adjoint of batch norms: bound by memory. With a relu the first pass reads d_y, x and y, the
// second the same and writes d_x: ResNet-50's stem at 224, 256x112x112x64 in f16, is 411 MB a
// tensor, 0.67 ms for seven. Where the first pass writes the shortcut's gradient, which is d_y with
// its mask, the second reads that in place of what it was made of. Not yet run on a GPU; shares of
// the peak go to bench/RECORDS.md.

namespace {

template <class T>
struct Sources {
  const T *d_y, *second, *x, *y;
};

// One vector of each, and g of them: d_y (+ second), 0 where y is not above 0.
template <class T, bool masked, bool two>
struct Loaded {
  static constexpr int width = vector_width<T>;
  Packed<T, width> d_y, second, x, y;

  __device__ void load(const Sources<T>& from, std::size_t place) {
    d_y = read<width>(from.d_y + place);
    if constexpr (two) second = read<width>(from.second + place);
    x = read<width>(from.x + place);
    if constexpr (masked) y = read<width>(from.y + place);
  }
  __device__ void gradient(float (&g)[width]) const {
    unpack(d_y, g);
    float other[width];
    if constexpr (two) {
      unpack(second, other);
#pragma unroll
      for (int i = 0; i < width; ++i) g[i] += other[i];
    }
    if constexpr (masked) {
      unpack(y, other);
#pragma unroll
      for (int i = 0; i < width; ++i) g[i] = other[i] > 0 ? g[i] : 0;
    }
  }
};

// Rows whose loads are in flight at once, and blocks a multiprocessor.
template <bool masked, bool two>
inline constexpr unsigned rows_at_once = masked || two ? 2 : 4;
constexpr unsigned resident_grad = 2;

// d_x = scale (g - shift - slope (x - mean)).
struct Slopes {
  float *scale, *shift, *slope;  // [channels]
};

template <class T>
struct SumsTo {
  const float *gamma, *mean, *inv_std;
  T *d_gamma, *d_beta, *d_shortcut;
  Slopes slopes;
};

// Of a channel: with n rows, shift = sum g / n and slope = inv_std^2 sum g (x - mean) / n.
template <class T>
__device__ inline void write_sums(const SumsTo<T>& to, unsigned rows, std::size_t channel,
                                  float sum, float product) {
  const float inv_std = to.inv_std[channel], count = static_cast<float>(rows);
  to.d_beta[channel] = narrow<T>(sum);
  to.d_gamma[channel] = narrow<T>(product * inv_std);
  to.slopes.scale[channel] = to.gamma[channel] * inv_std;
  to.slopes.shift[channel] = sum / count;
  to.slopes.slope[channel] = product / count * inv_std * inv_std;
}

// Sums of g and g (x - mean) over the rows; d_shortcut = g where there is one, and then the sums
// are those of g as it is stored, which d_x is made from.
template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident_grad)
    batch_norm_grad_sums(Sources<T> from, NormRows matrix, NormPartials partials, SumsTo<T> to) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two>;
  const std::size_t own = std::size_t{matrix.column()} * width;
  float mean[width] = {}, sum[width] = {}, product[width] = {};
  if (matrix.column() < matrix.columns) load_quads(to.mean + own, mean);
  Loaded<T, masked, two> loaded[at_once];
  walk<width, at_once, true>(
      matrix, [&](unsigned j, std::size_t place) { loaded[j].load(from, place); },
      [&](unsigned j, std::size_t place) {
        float g[width], x[width];
        loaded[j].gradient(g);
        if (to.d_shortcut != nullptr) {
          const Packed<T, width> stored = pack<T>(g);
          write(to.d_shortcut + place, stored);
          unpack(stored, g);
        }
        unpack(loaded[j].x, x);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          sum[i] += g[i];
          product[i] = fmaf(g[i], x[i] - mean[i], product[i]);
        }
      });
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  sum_column(sum, place);
  sum_column(product, place);
  if (threadIdx.y == 0 && matrix.column() < matrix.columns) {
    store_quads(partials.of(matrix, blockIdx.x, 0, own), sum);
    store_quads(partials.of(matrix, blockIdx.x, 1, own), product);
  }
  if (!last_block(partials.tickets + blockIdx.y, gridDim.x)) return;

  const LastPlace last(matrix, width);
  float sums[4] = {}, products[4] = {};
  if (last.mine) {
    const std::size_t pitch = 2 * std::size_t{matrix.channels};
    add_rows<float>(partials.of(matrix, 0, 0, last.channel), pitch, 0, gridDim.x, last.place, sums);
    add_rows<float>(partials.of(matrix, 0, 1, last.channel), pitch, 0, gridDim.x, last.place,
                    products);
  }
  sum_column(sums, last.place);
  sum_column(products, last.place);
  if (!last.mine || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_sums(to, matrix.rows, last.channel + i, sums[i], products[i]);
}

template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident_grad)
    batch_norm_grad_apply(Sources<T> from, T* __restrict__ d_x, NormRows matrix,
                          const float* __restrict__ means, Slopes slopes) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two>;
  float mean[width] = {}, scale[width] = {}, shift[width] = {}, slope[width] = {};
  if (matrix.column() < matrix.columns) {
    const std::size_t channel = std::size_t{matrix.column()} * width;
    load_quads(means + channel, mean);
    load_quads(slopes.scale + channel, scale);
    load_quads(slopes.shift + channel, shift);
    load_quads(slopes.slope + channel, slope);
  }
  Loaded<T, masked, two> loaded[at_once];
  walk<width, at_once, false>(
      matrix, [&](unsigned j, std::size_t place) { loaded[j].load(from, place); },
      [&](unsigned j, std::size_t place) {
        float g[width], x[width];
        loaded[j].gradient(g);
        unpack(loaded[j].x, x);
#pragma unroll
        for (int i = 0; i < width; ++i)
          g[i] = scale[i] * fmaf(mean[i] - x[i], slope[i], g[i] - shift[i]);
        store(d_x + place, g);
      });
}

template <class T>
auto sums_kernel(bool masked, bool two) {
  if (masked)
    return two ? batch_norm_grad_sums<T, true, true> : batch_norm_grad_sums<T, true, false>;
  return two ? batch_norm_grad_sums<T, false, true> : batch_norm_grad_sums<T, false, false>;
}

template <class T>
auto apply_kernel(bool masked, bool two) {
  if (masked)
    return two ? batch_norm_grad_apply<T, true, true> : batch_norm_grad_apply<T, true, false>;
  return two ? batch_norm_grad_apply<T, false, true> : batch_norm_grad_apply<T, false, false>;
}

// The workspace: what blocks leave, then the slopes.
std::size_t partial_floats(const NormShape& shape, DType dtype) {
  return norm_sum_blocks(shape.rows, shape.channels, dtype) * 2 *
         static_cast<std::size_t>(shape.channels);
}

}  // namespace

std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype) {
  return (partial_floats(shape, dtype) + 3 * static_cast<std::size_t>(shape.channels)) *
         sizeof(float);
}

void batch_norm_grad(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                     void* workspace, std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (shape.rows == 0 || shape.channels == 0) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    auto* memory = static_cast<float*>(workspace);
    float* behind = memory + partial_floats(shape, dtype);
    const Slopes slopes{behind, behind + shape.channels, behind + 2 * shape.channels};
    Sources<T> from{static_cast<const T*>(buffers.d_y), static_cast<const T*>(buffers.second),
                    static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.y)};
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch("batch_norm_grad_sums", sums_kernel<T>(from.y != nullptr, from.second != nullptr),
           norm_launch(matrix, blocks, stream), from, matrix, NormPartials{memory, tickets},
           SumsTo<T>{buffers.gamma, buffers.mean, buffers.inv_std, static_cast<T*>(buffers.d_gamma),
                     static_cast<T*>(buffers.d_beta), static_cast<T*>(buffers.d_shortcut), slopes});
    if (buffers.d_shortcut != nullptr)
      from = {static_cast<const T*>(buffers.d_shortcut), nullptr, from.x, nullptr};
    const bool masked = from.y != nullptr, two = from.second != nullptr;
    const unsigned at_once = masked || two ? rows_at_once<true, true> : rows_at_once<false, false>;
    launch("batch_norm_grad", apply_kernel<T>(masked, two),
           norm_launch(matrix, norm_pass_blocks(matrix, at_once, resident_grad), stream), from,
           static_cast<T*>(buffers.d_x), matrix, buffers.mean, slopes);
  });
}

}  // namespace warpstep::cuda

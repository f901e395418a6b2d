// Batch norm, y = (x - mean) * inv_std * gamma + beta per channel, with an optional shortcut and
// relu, and its adjoint. All kernels are bound by memory; the examples are ResNet-50's stem at 224,
// 256x112x112x64 in f16, 411 MB per tensor.
//   training    reads x once for the statistics and once for y, which it writes: 0.29 ms per pass;
//   a
//               shortcut is one more tensor to read
//   inference   reads x once
//   adjoint     with a relu the first pass reads d_y, x and y; the second reads the same and writes
//               d_x: 0.67 ms for seven tensors. Where the first pass writes the shortcut's gradient
//               (d_y with the mask applied), the second reads that instead of d_y and y
// These times are computed from the bytes; the kernels have not run on a GPU yet. Measured shares
// of the peak go to bench/RECORDS.md.

#include <cmath>

#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

// The count, the mean and m2, the sum of squared deviations from the mean, of a set of numbers. The
// mean is stored relative to the channel's number in the first row, so that rounding in merge() is
// relative to the differences within the channel, not to the size of its numbers.
template <int width>
struct Moments {
  float count = 0;
  float mean[width] = {}, m2[width] = {};

  // Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979.
  __device__ void merge(float other_count, const float (&other_mean)[width],
                        const float (&other_m2)[width]) {
    if (other_count == 0) return;
    const float total = count + other_count, fraction = other_count / total;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float delta = other_mean[i] - mean[i];
      mean[i] += delta * fraction;
      m2[i] += other_m2[i] + delta * delta * (count * fraction);
    }
    count = total;
  }
};

// Merges the threads of each column, as a tree over the rows; row 0 has the result. The whole block
// calls it.
template <int width>
__device__ inline void merge_column(Moments<width>& moments, const Place& at) {
  __shared__ float4 means[width / 4][norm_threads / 2], m2s[width / 4][norm_threads / 2];
  __shared__ float counts[norm_threads / 2];
  __syncthreads();  // readers of an earlier call are done
  for (unsigned live = at.rows; live > 1;) {
    const unsigned half = (live + 1) / 2;
    if (at.row >= half && at.row < live) {
      const unsigned to = (at.row - half) * at.columns + at.column;
      counts[to] = moments.count;
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const float *m = moments.mean + 4 * i, *s = moments.m2 + 4 * i;
        means[i][to] = make_float4(m[0], m[1], m[2], m[3]);
        m2s[i][to] = make_float4(s[0], s[1], s[2], s[3]);
      }
    }
    __syncthreads();
    if (at.row < live - half) {
      const unsigned from = at.row * at.columns + at.column;
      float mean[width], m2[width];
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const float4 m = means[i][from], s = m2s[i][from];
        mean[4 * i] = m.x, mean[4 * i + 1] = m.y, mean[4 * i + 2] = m.z, mean[4 * i + 3] = m.w;
        m2[4 * i] = s.x, m2[4 * i + 1] = s.y, m2[4 * i + 2] = s.z, m2[4 * i + 3] = s.w;
      }
      moments.merge(counts[from], mean, m2);
    }
    __syncthreads();
    live = half;
  }
}

constexpr unsigned at_once = 4;   // rows whose loads are in flight
constexpr unsigned resident = 3;  // blocks per multiprocessor

// The moments of the rows that this thread reads of its column. It sums deviations from the first
// number that it reads: a mean far from 0 then costs no precision, and an outlier in the first row
// costs no more than it adds to the variance itself.
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
          const float deviation = v[i] - origin[i];
          sum[i] += deviation;
          squares[i] = fmaf(deviation, deviation, squares[i]);
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
    const float m2 = squares[i] - mean * sum[i];
    moments.mean[i] = (origin[i] - first_row[i]) + mean;
    moments.m2[i] = m2 < 0 ? 0 : m2;  // a NaN stays
  }
  return moments;
}

struct Statistics {
  float *mean, *inv_std, *running_mean, *running_var;
  float epsilon;
  double momentum;
};

// Writes the statistics of one channel; padding channels stay 0. The running statistics accumulate
// the rounding of every step, so they are updated in double: a few numbers per channel.
__device__ inline void write_statistics(const Statistics& to, const NormRows& matrix,
                                        std::size_t channel, float mean, float m2) {
  const bool real = channel < matrix.real;
  const auto count = static_cast<float>(matrix.rows);
  to.mean[channel] = real ? mean : 0;
  to.inv_std[channel] = real ? 1 / sqrtf(m2 / count + to.epsilon) : 0;
  if (!real) return;
  const double old_mean = to.running_mean[channel], old_var = to.running_var[channel];
  const double var = static_cast<double>(m2) / (static_cast<double>(matrix.rows) - 1);
  to.running_mean[channel] = static_cast<float>(old_mean + to.momentum * (mean - old_mean));
  to.running_var[channel] = static_cast<float>(old_var + to.momentum * (var - old_var));
}

// The first pass over x: mean and variance. 5 instructions per element, half of the time that its
// two bytes take.
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
    store_quads(partials.of(matrix, blockIdx.x, 1, channel), moments.m2);
  }
  if (!last_block(partials.tickets + blockIdx.y, gridDim.x)) return;

  const LastPlace last(matrix, width);
  Moments<4> total;
  const unsigned blocks = last.active ? gridDim.x : 0;
#pragma unroll 4
  for (unsigned block = last.place.row; block < blocks; block += last.place.rows) {
    float mean[4], m2[4];
    load(partials.of(matrix, block, 0, last.channel), mean);
    load(partials.of(matrix, block, 1, last.channel), m2);
    total.merge(static_cast<float>(matrix.rows_of(block, at_once)), mean, m2);
  }
  merge_column(total, last.place);
  if (!last.active || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_statistics(to, matrix, last.channel + i, widen(x[last.channel + i]) + total.mean[i],
                     total.m2[i]);
}

// The channels' numbers in y = (x - mean) * scale + beta: subtracting first keeps precision where
// the mean is large.
struct Channels {
  const float *gamma, *beta, *mean;
  const float* inv_std_or_var;  // inv_std in training, else the running variance
  float epsilon;
};

template <bool training, int width>
struct OwnChannels {
  float mean[width] = {}, scale[width] = {}, beta[width] = {};

  __device__ OwnChannels(const Channels& from, const NormRows& matrix) {
    if (matrix.column() >= matrix.columns) return;
    const std::size_t channel = std::size_t{matrix.column()} * width;
    float inv_std[width] = {};
    load_quads(from.gamma + channel, scale);
    load_quads(from.beta + channel, beta);
    if constexpr (training) {
      load_quads(from.mean + channel, mean);
      load_quads(from.inv_std_or_var + channel, inv_std);
    }
#pragma unroll
    for (unsigned i = 0; i < width; ++i) {
      if (!training && channel + i < matrix.real) {
        mean[i] = from.mean[channel + i];
        inv_std[i] = 1 / sqrtf(from.inv_std_or_var[channel + i] + from.epsilon);
      }
      scale[i] *= inv_std[i];
    }
  }
};

// The second pass over x, which writes y; the only pass of inference.
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

// Two floats per channel and row block: see NormPartials.
std::size_t partial_floats(const NormShape& shape, DType dtype) {
  return norm_sum_blocks(shape.rows, shape.channels, dtype) * 2 *
         static_cast<std::size_t>(shape.channels);
}

}  // namespace

std::size_t batch_norm_tickets(const NormShape& shape, DType dtype) {
  const std::size_t across = norm_columns * 16 / size_bytes(dtype);
  return (static_cast<std::size_t>(shape.channels) + across - 1) / across;
}

std::size_t batch_norm_workspace(const NormShape& shape, DType dtype) {
  return partial_floats(shape, dtype) * sizeof(float);
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

// The adjoint.

namespace {

template <class T>
struct Sources {
  const T *d_y, *second, *x, *y;
};

// One vector of each source. gradient() gives g = d_y (+ second), and 0 where y is not above 0.
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

template <bool masked, bool two>
inline constexpr unsigned rows_at_once = masked || two ? 2 : 4;  // whose loads are in flight
constexpr unsigned resident_grad = 2;                            // blocks per multiprocessor

// The coefficients of d_x = scale (g - shift - slope (x - mean)).
struct Slopes {
  float *scale, *shift, *slope;  // [channels]
};

template <class T>
struct SumsTo {
  const float *gamma, *mean, *inv_std;
  T *d_gamma, *d_beta, *d_shortcut;
  Slopes slopes;
};

// Writes d_gamma, d_beta and the slopes of one channel: with n rows, shift = sum g / n and slope =
// inv_std^2 sum g (x - mean) / n.
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

// The first pass: sums of g and g (x - mean) over the rows. With a shortcut it also writes
// d_shortcut = g, and sums g as stored (rounded to T), as that is what the second pass reads.
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
  if (last.active) {
    const std::size_t pitch = 2 * std::size_t{matrix.channels};
    add_rows<float>(partials.of(matrix, 0, 0, last.channel), pitch, 0, gridDim.x, last.place, sums);
    add_rows<float>(partials.of(matrix, 0, 1, last.channel), pitch, 0, gridDim.x, last.place,
                    products);
  }
  sum_column(sums, last.place);
  sum_column(products, last.place);
  if (!last.active || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_sums(to, matrix.rows, last.channel + i, sums[i], products[i]);
}

// The second pass: d_x.
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

}  // namespace

// The blocks' partial sums, then the slopes.
std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype) {
  return (partial_floats(shape, dtype) + 3 * static_cast<std::size_t>(shape.channels)) *
         sizeof(float);
}

void batch_norm_grad(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                     void* workspace, std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    auto* memory = static_cast<float*>(workspace);
    float* coefficients = memory + partial_floats(shape, dtype);
    const Slopes slopes{coefficients, coefficients + shape.channels,
                        coefficients + 2 * shape.channels};
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

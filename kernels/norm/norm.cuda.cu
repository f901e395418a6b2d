// Batch norm, y = (x - mean) * inv_std * gamma + beta per channel, with an optional shortcut and
// relu, and its adjoint. All kernels are bound by memory; the examples are ResNet-50's stem at 224,
// 256x112x112x64 in f16, 411 MB per tensor.
//   training    reads x once for the statistics and once for y, which it writes: 0.29 ms per pass;
//   a
//               shortcut is one more tensor to read
//   inference   reads x once
//   adjoint     norm_grad.cuda.cu
// Over several ranks two floats per channel of each are exchanged after the sums: batch_norm_join.
// These times are computed from the bytes, and not measured yet. Measured shares
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

constexpr unsigned norm_rows_at_once = 4;  // rows whose loads are in flight
constexpr unsigned norm_resident = 3;      // blocks per multiprocessor

// The moments of the rows that this thread reads of its column. It sums deviations from the first
// number that it reads: a mean far from 0 then costs no precision, and an outlier in the first row
// costs no more than it adds to the variance itself.
template <class T, int width>
__device__ inline Moments<width> own_moments(const T* __restrict__ x, const NormRows& matrix) {
  float origin[width] = {}, sum[width] = {}, squares[width] = {};
  unsigned count = 0;
  Packed<T, width> packed[norm_rows_at_once];
  walk<width, norm_rows_at_once, true>(
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
__device__ inline void write_statistics(const Statistics& to, unsigned real_channels,
                                        std::size_t channel, float count, float mean, float m2) {
  const bool real = channel < real_channels;
  to.mean[channel] = real ? mean : 0;
  to.inv_std[channel] = real ? 1 / sqrtf(m2 / count + to.epsilon) : 0;
  if (!real) return;
  const double old_mean = to.running_mean[channel], old_var = to.running_var[channel];
  const double var = static_cast<double>(m2) / (static_cast<double>(count) - 1);
  to.running_mean[channel] = static_cast<float>(old_mean + to.momentum * (mean - old_mean));
  to.running_var[channel] = static_cast<float>(old_var + to.momentum * (var - old_var));
}

// The first pass over x: mean and variance. 5 instructions per element, half of the time that its
// two bytes take.
template <class T>
__global__ void __launch_bounds__(norm_threads, norm_resident)
    batch_norm_statistics(const T* __restrict__ x, NormRows matrix, NormPartials partials,
                          Statistics to, OfRanks of_ranks) {
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
    total.merge(static_cast<float>(matrix.rows_of(block, norm_rows_at_once)), mean, m2);
  }
  merge_column(total, last.place);
  if (!last.active || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const std::size_t channel = last.channel + i;
    const float mean = widen(x[channel]) + total.mean[i];
    if (of_ranks.memory == nullptr) {
      write_statistics(to, matrix.real, channel, static_cast<float>(matrix.rows), mean,
                       total.m2[i]);
    } else {
      of_ranks.of(of_ranks.own, 0, channel) = mean;
      of_ranks.of(of_ranks.own, 1, channel) = total.m2[i];
    }
  }
}

// Merges the moments of all ranks, each of as many rows, a thread per channel.
__global__ void batch_norm_join(OfRanks of_ranks, NormRows matrix, Statistics to) {
  const unsigned channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= of_ranks.channels) return;
  double mean = 0, m2 = 0;
  for (unsigned r = 0; r < of_ranks.ranks; ++r) mean += of_ranks.of(r, 0, channel);
  mean /= of_ranks.ranks;
  for (unsigned r = 0; r < of_ranks.ranks; ++r) {
    const double delta = of_ranks.of(r, 0, channel) - mean;
    m2 += of_ranks.of(r, 1, channel) + matrix.rows * delta * delta;
  }
  write_statistics(to, matrix.real, channel,
                   static_cast<float>(matrix.rows) * static_cast<float>(of_ranks.ranks),
                   static_cast<float>(mean), static_cast<float>(m2));
}

// The second pass over x, which writes y; the only pass of inference.
template <class T, bool training, bool adds>
__global__ void __launch_bounds__(norm_threads, norm_resident)
    batch_norm_pass(const T* __restrict__ x, const T* __restrict__ shortcut, T* __restrict__ y,
                    NormRows matrix, Channels channels, bool relu) {
  constexpr int width = vector_width<T>;
  const OwnChannels<training, width> own(channels, matrix);
  Packed<T, width> from_x[norm_rows_at_once], from_shortcut[norm_rows_at_once];
  walk<width, norm_rows_at_once, false>(
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
          if (relu) v[i] = rectified(v[i]);
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
         norm_launch(matrix, norm_pass_blocks(matrix, norm_rows_at_once, norm_resident), stream),
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

Statistics statistics_to(const NormShape& shape, const NormBuffers& buffers) {
  return {buffers.mean,        buffers.inv_std, buffers.running_mean,
          buffers.running_var, shape.epsilon,   shape.momentum};
}

}  // namespace

std::size_t batch_norm_tickets(const NormShape& shape, DType dtype) {
  const std::size_t across = norm_columns * 16 / size_bytes(dtype);
  return (static_cast<std::size_t>(shape.channels) + across - 1) / across;
}

// The blocks' partial sums, the sums of all ranks, and in the adjoint the slopes.
std::size_t batch_norm_workspace(const NormShape& shape, DType dtype) {
  return (partial_floats(shape, dtype) + rank_floats(shape)) * sizeof(float);
}

float* batch_norm_of_ranks(const NormShape& shape, DType dtype, void* workspace) {
  return static_cast<float*>(workspace) + partial_floats(shape, dtype);
}

void batch_norm_sum(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                    void* workspace, std::uint32_t* tickets, int rank, cudaStream_t stream) {
  dispatch("batch_norm", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm", shape);
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch("batch_norm_statistics", batch_norm_statistics<T>, norm_launch(matrix, blocks, stream),
           static_cast<const T*>(buffers.x), matrix,
           NormPartials{static_cast<float*>(workspace), tickets}, statistics_to(shape, buffers),
           of_ranks(shape, dtype, workspace, rank));
  });
}

void batch_norm_merge(const NormShape& shape, const NormBuffers& buffers, DType dtype,
                      void* workspace, cudaStream_t stream) {
  dispatch("batch_norm", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    launch("batch_norm_join", batch_norm_join, join_launch(shape, stream),
           of_ranks(shape, dtype, workspace, 0), norm_rows<T>("batch_norm", shape),
           statistics_to(shape, buffers));
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

}  // namespace warpstep::cuda

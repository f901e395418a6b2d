// Layer norm over rows of channels, with an optional shortcut that it adds first, and its adjoint.
// Bound by memory; the examples are GPT-2's rows at batch 64, 65536x768 in bf16, 101 MB per tensor:
//   forward   reads x and writes y, 0.05 ms; with a shortcut two tensors each, 0.09 ms
//   adjoint   reads d_y and s and writes d_s, 0.07 ms; with a second gradient one more, 0.09 ms
// A warp keeps a row of up to 1024 channels in registers, in f32 768, a block one of up to 6144, so
// that each tensor is read once. Wider rows are read again for each pass, from the nearest cache.
// The adjoint's sums over rows are in two stages: each block adds its rows in order, and a second
// launch adds the blocks, some 1.6 MB, 2 us. These times are computed from the bytes at 4.3 TB/s.
// Measured at batch 8, an eighth of these bytes: forward 13 us, adjoint 16 and 3 us.
#include "kernels/layer_norm/layer_norm.cuda.h"

#include <cmath>

#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned layer_norm_block = column_threads;
constexpr unsigned adjoint_blocks = 264;  // two for each of an H200's 132 multiprocessors

struct RowShape {
  unsigned rows, columns;  // columns: vectors of 16 bytes
  unsigned channels, real;
  float epsilon;
};

// How a row is divided: `group` threads, a warp or the block, have up to `vectors` vectors each in
// registers, the j-th `group` vectors after the one before. 0 vectors: rows of any width, which
// every pass reads again.
template <class T, unsigned threads, int octets>
struct Division {
  static constexpr unsigned group = threads, together = layer_norm_block / group;
  static constexpr int width = vector_width<T>, vectors = octets * 8 / width;
  static constexpr bool resident = vectors > 0;

  static __device__ unsigned member() { return threadIdx.x % group; }
  static __device__ unsigned row_of_block() { return threadIdx.x / group; }

  // Over the row's threads, all of which get the sum; the whole block calls it if it is the group.
  static __device__ float sum(float value) {
    if constexpr (group == warp_lanes)
      return group_reduce<warp_lanes>(value, Sum{});
    else
      return block_reduce(value, 0.0F, Sum{});
  }

  // Calls body(j, channel) for the thread's vectors.
  template <class Body>
  static __device__ void each(unsigned columns, Body body) {
    if constexpr (resident) {
#pragma unroll
      for (int j = 0; j < vectors; ++j)
        if (const unsigned column = static_cast<unsigned>(j) * group + member(); column < columns)
          body(j, column * width);
    } else {
      for (unsigned column = member(); column < columns; column += group) body(0, column * width);
    }
  }
};

// The thread's part of a row of x (+ shortcut).
template <class D, class T>
struct OwnPart {
  const T *x, *shortcut;
  float kept[D::resident ? D::vectors : 1][D::width];

  __device__ void read_at(unsigned channel, float (&to)[D::width]) const {
    load(x + channel, to);
    if (shortcut == nullptr) return;
    float more[D::width];
    load(shortcut + channel, more);
#pragma unroll
    for (int i = 0; i < D::width; ++i) to[i] += more[i];
  }
  // Calls body(values, channel) for the thread's vectors of the row.
  template <class Body>
  __device__ void each(unsigned columns, Body body) {
    D::each(columns, [&](int j, unsigned channel) {
      if constexpr (!D::resident) read_at(channel, kept[0]);
      body(kept[j], channel);
    });
  }
};

// The mean is `near`, the rounded mean, plus `rest`, the mean of what is left: the variance is that
// of deviations, and no mean costs digits. Padding counts in no sum.
template <class T, class D>
__global__ void __launch_bounds__(layer_norm_block)
    layer_norm_kernel(const T* __restrict__ x, const T* __restrict__ shortcut,
                      const float* __restrict__ gammas, const float* __restrict__ betas,
                      T* __restrict__ y, T* __restrict__ sums, float* __restrict__ means,
                      float* __restrict__ inv_stds, RowShape shape) {
  const unsigned row = blockIdx.x * D::together + D::row_of_block();
  if (D::together > 1 && row >= shape.rows) return;  // whole warps, which meet no other again
  const std::size_t begin = std::size_t{row} * shape.channels;
  OwnPart<D, T> part{x + begin, shortcut == nullptr ? nullptr : shortcut + begin, {}};
  if constexpr (D::resident)
    D::each(shape.columns, [&](int j, unsigned channel) { part.read_at(channel, part.kept[j]); });
  float sum = 0;
  part.each(shape.columns, [&](const float(&v)[D::width], unsigned channel) {
    if (shortcut != nullptr) store(sums + begin + channel, v);
#pragma unroll
    for (int i = 0; i < D::width; ++i) sum += v[i];
  });
  const auto count = static_cast<float>(shape.real);
  const float near = D::sum(sum) / count;
  float deviations = 0, squares = 0;
  part.each(shape.columns, [&](const float(&v)[D::width], unsigned channel) {
#pragma unroll
    for (int i = 0; i < D::width; ++i) {
      const float deviation = channel + i < shape.real ? v[i] - near : 0;
      deviations += deviation;
      squares = fmaf(deviation, deviation, squares);
    }
  });
  const float rest = D::sum(deviations) / count;
  const float var = D::sum(squares) / count - rest * rest;
  const float inv_std = 1 / sqrtf((var < 0 ? 0 : var) + shape.epsilon);
  if (D::member() == 0) {
    means[row] = near + rest;
    inv_stds[row] = inv_std;
  }
  part.each(shape.columns, [&](const float(&v)[D::width], unsigned channel) {
    float gamma[D::width], out[D::width] = {};
    load_quads(gammas + channel, gamma);
    if (betas != nullptr) load_quads(betas + channel, out);
#pragma unroll
    for (int i = 0; i < D::width; ++i)
      out[i] = fmaf(((v[i] - near) - rest) * inv_std, gamma[i], out[i]);
    store(y + begin + channel, out);
  });
}

// Runs run.operator()<Division>() with the narrowest division that holds a row.
template <class T, class Run>
void divide(const RowShape& shape, Run run) {
  const unsigned channels = shape.channels;
  if (channels <= 256) return run.template operator()<Division<T, 32, 1>>();
  if (channels <= 768) return run.template operator()<Division<T, 32, 3>>();
  if constexpr (sizeof(T) == 2)  // in f32 the adjoint would spill
    if (channels <= 1024) return run.template operator()<Division<T, 32, 4>>();
  if (channels <= 2048) return run.template operator()<Division<T, 256, 1>>();
  if (channels <= 6144) return run.template operator()<Division<T, 256, 3>>();
  run.template operator()<Division<T, 256, 0>>();
}

template <class T>
RowShape row_shape(const char* name, const LayerNormShape& shape) {
  return {.rows = index32(name, "rows", shape.rows),
          .columns = index32(name, "channels", shape.channels, vector_width<T>),
          .channels = index32(name, "channels", shape.channels),
          .real = static_cast<unsigned>(shape.real),
          .epsilon = shape.epsilon};
}

}  // namespace

void layer_norm(const LayerNormShape& shape, const LayerNormBuffers& buffers, DType dtype,
                cudaStream_t stream) {
  dispatch("layer_norm", dtype, [&]<class T>() {
    const RowShape rows = row_shape<T>("layer_norm", shape);
    if (rows.rows == 0 || rows.real == 0) return;
    divide<T>(rows, [&]<class D>() {
      launch(
          "layer_norm", layer_norm_kernel<T, D>,
          {.grid = blocks_for(rows.rows, D::together), .block = layer_norm_block, .stream = stream},
          static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.shortcut), buffers.gamma,
          buffers.beta, static_cast<T*>(buffers.y), static_cast<T*>(buffers.sum), buffers.mean,
          buffers.inv_std, rows);
    });
  });
}

// The adjoint.

namespace {

// d_s and second may be d_y: each vector is read before it is written, by one thread.
template <class T>
struct GradRows {
  const T *d_y, *s, *second;
  const float *gamma, *mean, *inv_std;
  T* d_s;
  float* partials;  // [blocks][d_gamma, d_beta if bias, sums of d_s if d_s_sums][channels]
  bool bias, d_s_sums;

  __device__ unsigned results() const { return 1 + (bias ? 1 : 0) + (d_s_sums ? 1 : 0); }
};

// A thread's vectors of the sums over the block's rows: in registers, or for rows of any width in
// the block's own partial sums, of which each thread has its channels. There is no room in
// registers for those of d_s, which are in shared memory.
template <class D>
struct OwnSums {
  float gamma[D::resident ? D::vectors : 1][D::width] = {};
  float beta[D::resident ? D::vectors : 1][D::width] = {};
};

// Sums of a block in shared memory, for each of the rows that it treats at once. The quads of the
// group's threads are next to each other, so that its accesses have no conflicts.
template <class D>
struct SharedSums {
  static constexpr unsigned quads_per_vector = D::width / 4;
  static constexpr unsigned quads = D::resident ? D::group * D::vectors * quads_per_vector : 1;
  float4 of_rows[D::together][quads];

  static __device__ unsigned place(int j, unsigned q) {
    return (static_cast<unsigned>(j) * quads_per_vector + q) * D::group + D::member();
  }
  static __device__ unsigned channel_of(unsigned quad) {
    const unsigned vector = quad / (D::group * quads_per_vector) * D::group + quad % D::group;
    return vector * D::width + quad / D::group % quads_per_vector * 4;
  }
  __device__ void put(int j, const float (&values)[D::width]) {
#pragma unroll
    for (unsigned q = 0; q < quads_per_vector; ++q)
      of_rows[D::row_of_block()][place(j, q)] =
          make_float4(values[4 * q], values[4 * q + 1], values[4 * q + 2], values[4 * q + 3]);
  }
  __device__ void add(int j, const float (&values)[D::width]) {
#pragma unroll
    for (unsigned q = 0; q < quads_per_vector; ++q) {
      float4& sum = of_rows[D::row_of_block()][place(j, q)];
      sum = make_float4(sum.x + values[4 * q], sum.y + values[4 * q + 1], sum.z + values[4 * q + 2],
                        sum.w + values[4 * q + 3]);
    }
  }
  // Writes the sums of all rows, added in order; the whole block calls it.
  __device__ void write(unsigned channels, float* to) const {
    __syncthreads();
    for (unsigned quad = threadIdx.x; quad < quads; quad += layer_norm_block) {
      const unsigned channel = channel_of(quad);
      if (channel >= channels) continue;
      float4 sum = of_rows[0][quad];
#pragma unroll
      for (unsigned row = 1; row < D::together; ++row) {
        const float4 more = of_rows[row][quad];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
      }
      *reinterpret_cast<float4*>(to + channel) = sum;
    }
    __syncthreads();  // before the next sums are put
  }
};

template <int width>
__device__ inline void add_quads(float* to, const float (&more)[width]) {
  float sum[width];
  load_quads(to, sum);
#pragma unroll
  for (int i = 0; i < width; ++i) sum[i] += more[i];
  store_quads(to, sum);
}

// Whether `second` is read with the rest of the row: d_s may replace it, so that after the first
// store each of its vectors would be a latency of its own.
template <class T, class D>
inline constexpr bool reads_second_ahead = D::resident && sizeof(T) == 2;

// The thread's part of a row of d_y and of h = (s - mean) inv_std.
template <class T, class D>
struct GradPart {
  using Vector = Packed<T, D::width>;
  static constexpr int kept = D::resident ? D::vectors : 1;
  const GradRows<T>& of;
  std::size_t begin;
  float mean, inv_std;
  Vector d_y[kept], s[kept], second[reads_second_ahead<T, D> ? kept : 1];  // 0 without a second

  __device__ void read_at(int j, unsigned channel) {
    d_y[j] = read<D::width>(of.d_y + begin + channel);
    s[j] = read<D::width>(of.s + begin + channel);
    if constexpr (reads_second_ahead<T, D>)
      if (of.second != nullptr) second[j] = read<D::width>(of.second + begin + channel);
  }
  // Calls body(j, channel, d_y, h, gamma d_y) for the thread's vectors.
  template <class Body>
  __device__ void each(unsigned columns, Body body) {
    D::each(columns, [&](int j, unsigned channel) {
      if constexpr (!D::resident) read_at(j, channel);
      float y[D::width], h[D::width], scaled[D::width];
      unpack(d_y[j], y);
      unpack(s[j], h);
      load_quads(of.gamma + channel, scaled);
#pragma unroll
      for (int i = 0; i < D::width; ++i) {
        h[i] = (h[i] - mean) * inv_std;
        scaled[i] = __fmul_rn(scaled[i], y[i]);  // its own mean cancels it exactly: no fma
      }
      body(j, channel, y, h, scaled);
    });
  }
};

// d_s of one row; adds d_y h, d_y and d_s to the sums.
template <class T, class D>
__device__ inline void row_gradient(const GradRows<T>& of, const RowShape& shape, unsigned row,
                                    OwnSums<D>& sums, SharedSums<D>& d_s_sums, float* own) {
  constexpr int width = D::width;
  const auto count = static_cast<float>(shape.real);
  GradPart<T, D> part{of, std::size_t{row} * shape.channels, of.mean[row], of.inv_std[row], {}, {},
                      {}};
  if constexpr (D::resident)
    D::each(shape.columns, [&](int j, unsigned channel) { part.read_at(j, channel); });
  float g = 0, gh = 0;
  part.each(shape.columns, [&](int, unsigned, const float(&)[width], const float(&h)[width],
                               const float(&scaled)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      g += scaled[i];
      gh = fmaf(scaled[i], h[i], gh);
    }
  });
  const float mean_g = D::sum(g) / count, mean_gh = D::sum(gh) / count;
  part.each(shape.columns, [&](int j, unsigned channel, const float(&d_y)[width],
                               const float(&h)[width], const float(&scaled)[width]) {
    // channel + i < real would be 24 numbers that ptxas keeps in registers.
    const int left = static_cast<int>(shape.real) - static_cast<int>(channel);
    float d_s[width] = {}, of_gamma[width];
    if constexpr (reads_second_ahead<T, D>)
      unpack(part.second[j], d_s);
    else if (of.second != nullptr)
      load(of.second + part.begin + channel, d_s);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float more = part.inv_std * (scaled[i] - mean_g - h[i] * mean_gh);
      if (i < left) d_s[i] += more;
      of_gamma[i] = d_y[i] * h[i];
    }
    store(of.d_s + part.begin + channel, d_s);
    if constexpr (D::resident) {
      if (of.d_s_sums) d_s_sums.add(j, d_s);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sums.gamma[j][i] += of_gamma[i];
        sums.beta[j][i] += d_y[i];
      }
    } else {
      add_quads(own + channel, of_gamma);
      if (of.bias) add_quads(own + shape.channels + channel, d_y);
      if (of.d_s_sums) add_quads(own + (of.results() - 1) * shape.channels + channel, d_s);
    }
  });
}

// Writes the block's sums: those of d_s, and then through the same memory the others.
template <class T, class D>
__device__ inline void write_sums(const OwnSums<D>& sums, SharedSums<D>& shared,
                                  const GradRows<T>& of, const RowShape& shape, float* own) {
  const auto write_own = [&](const float(&values)[D::vectors][D::width], float* to) {
    D::each(shape.columns, [&](int j, unsigned) { shared.put(j, values[j]); });
    shared.write(shape.channels, to);
  };
  if (of.d_s_sums) shared.write(shape.channels, own + (of.results() - 1) * shape.channels);
  write_own(sums.gamma, own);
  if (of.bias) write_own(sums.beta, own + shape.channels);
}

// Blocks per multiprocessor; a thread with 32 channels needs more than the 128 registers of two.
template <class D>
inline constexpr unsigned adjoint_resident = !D::resident                 ? 4
                                             : D::vectors * D::width < 32 ? 2
                                                                          : 1;

template <class T, class D>
__global__ void __launch_bounds__(layer_norm_block, adjoint_resident<D>)
    layer_norm_grad_kernel(GradRows<T> of, RowShape shape) {
  const auto partials = [&] {  // not kept while the rows are added: registers are scarce
    return of.partials + std::size_t{blockIdx.x} * of.results() * shape.channels;
  };
  float* own = nullptr;
  OwnSums<D> sums;
  __shared__ SharedSums<D> shared;
  if constexpr (D::resident) {
    if (of.d_s_sums) D::each(shape.columns, [&](int j, unsigned) { shared.put(j, sums.gamma[j]); });
  } else {
    own = partials();
    D::each(shape.columns, [&](int, unsigned channel) {
      for (unsigned result = 0; result < of.results(); ++result)
        store_quads(own + result * shape.channels + channel, sums.gamma[0]);
    });
  }
  const unsigned step = gridDim.x * D::together;
  for (unsigned row = blockIdx.x * D::together + D::row_of_block(); row < shape.rows; row += step)
    row_gradient<T>(of, shape, row, sums, shared, own);
  if constexpr (D::resident) write_sums<T>(sums, shared, of, shape, partials());
}

template <class T>
struct Results {
  T *first, *second, *third;  // as in the partial sums
};

// Adds the blocks' partial sums, a quad of channels (x) by a few threads (y).
template <class T>
__global__ void __launch_bounds__(column_threads)
    layer_norm_grad_sums(const float* __restrict__ partials, unsigned blocks, unsigned quads,
                         unsigned channels, Results<T> results) {
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  const unsigned quad = blockIdx.x * blockDim.x + place.column;
  float total[4] = {};
  if (quad < quads)
    add_rows<float>(partials + std::size_t{quad} * 4, std::size_t{quads} * 4, 0, blocks, place,
                    total);
  sum_column(total, place);
  if (place.row > 0 || quad >= quads) return;
  const unsigned result = quad * 4 / channels;
  store((result == 0   ? results.first
         : result == 1 ? results.second
                       : results.third) +
            quad * 4 % channels,
        total);
}

// The threads of a block: so many for each quad that the partial sums of all `blocks` are on their
// way at once. 264 blocks of 768 channels with a bias are added by 192 blocks.
dim3 block_of_sums(unsigned blocks) {
  unsigned y = 1;
  while (y * rows_per_thread < blocks) y *= 2;
  return dim3(column_threads / y, y);
}

template <class T, class D>
unsigned blocks_of(const RowShape& shape) {
  const unsigned blocks = blocks_for(shape.rows, D::together);
  return blocks < adjoint_blocks ? blocks : adjoint_blocks;
}

}  // namespace

std::size_t layer_norm_grad_workspace(const LayerNormShape& shape, int results, DType dtype) {
  std::size_t bytes = 0;
  dispatch("layer_norm_grad", dtype, [&]<class T>() {
    const RowShape rows = row_shape<T>("layer_norm_grad", shape);
    divide<T>(rows, [&]<class D>() {
      bytes = std::size_t{blocks_of<T, D>(rows)} * static_cast<std::size_t>(results) *
              rows.channels * sizeof(float);
    });
  });
  return bytes;
}

void layer_norm_grad(const LayerNormShape& shape, const LayerNormGradBuffers& buffers, DType dtype,
                     void* workspace, cudaStream_t stream) {
  dispatch("layer_norm_grad", dtype, [&]<class T>() {
    const RowShape rows = row_shape<T>("layer_norm_grad", shape);
    if (rows.real == 0) return;
    auto* partials = static_cast<float*>(workspace);
    const bool bias = buffers.d_beta != nullptr, d_s_sums = buffers.d_s_sums != nullptr;
    auto *d_gamma = static_cast<T*>(buffers.d_gamma), *d_beta = static_cast<T*>(buffers.d_beta),
         *of_d_s = static_cast<T*>(buffers.d_s_sums);
    const Results<T> results{d_gamma, bias ? d_beta : of_d_s, of_d_s};
    unsigned blocks = 0;
    if (rows.rows > 0)
      divide<T>(rows, [&]<class D>() {
        blocks = blocks_of<T, D>(rows);
        launch("layer_norm_grad", layer_norm_grad_kernel<T, D>,
               {.grid = blocks, .block = layer_norm_block, .stream = stream},
               GradRows<T>{static_cast<const T*>(buffers.d_y), static_cast<const T*>(buffers.s),
                           static_cast<const T*>(buffers.second), buffers.gamma, buffers.mean,
                           buffers.inv_std, static_cast<T*>(buffers.d_s), partials, bias, d_s_sums},
               rows);
      });
    const unsigned quads = rows.channels / 4 * (1U + (bias ? 1U : 0U) + (d_s_sums ? 1U : 0U));
    static_assert(adjoint_blocks <= column_threads * rows_per_thread);
    const dim3 block = block_of_sums(blocks);
    launch("layer_norm_grad_sums", layer_norm_grad_sums<T>,
           {.grid = blocks_for(quads, block.x), .block = block, .stream = stream}, partials, blocks,
           quads, rows.channels, results);
  });
}

}  // namespace warpstep::cuda

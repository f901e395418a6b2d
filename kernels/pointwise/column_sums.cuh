// Sums of the columns of a matrix [rows, channels], by the kernel that reads or writes it, in one
// launch and a fixed order: each thread adds rows of its column vector, a block adds its threads'
// sums as a tree, and of the blocks over the same columns the last to finish adds their sums. A
// block is x column vectors by y rows, so that a thread stays in its column; the grid is row blocks
// (x) by column blocks (y).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {

inline constexpr unsigned column_threads = 256;
inline constexpr unsigned rows_per_thread = 4;  // in flight at once

// The place of the calling thread in `rows` rows of `columns` threads; threads with row >= rows
// only participate in __syncthreads().
struct Place {
  unsigned column, row, columns, rows;
};

// Loads `width` floats, in words of 16 bytes.
template <int width>
__device__ inline void load_quads(const float* from, float (&to)[width]) {
#pragma unroll
  for (int i = 0; i < width; i += 4) {
    float quad[4];
    load(from + i, quad);
#pragma unroll
    for (int n = 0; n < 4; ++n) to[i + n] = quad[n];
  }
}

// Stores them.
template <int width>
__device__ inline void store_quads(float* to, const float (&from)[width]) {
#pragma unroll
  for (int i = 0; i < width; i += 4) {
    const float quad[4] = {from[i], from[i + 1], from[i + 2], from[i + 3]};
    store(to + i, quad);
  }
}

// Sums the threads of each column, as a tree over the rows; row 0 has the result. The whole block
// calls it.
template <int width>
__device__ inline void sum_column(float (&sum)[width], const Place& at) {
  __shared__ float4 tile[width / 4][column_threads / 2];
  __syncthreads();  // readers of an earlier call are done
  for (unsigned live = at.rows; live > 1;) {
    const unsigned half = (live + 1) / 2;
    if (at.row >= half && at.row < live)
#pragma unroll
      for (int i = 0; i < width / 4; ++i)
        tile[i][(at.row - half) * at.columns + at.column] =
            make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    __syncthreads();
    if (at.row < live - half)
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const float4 other = tile[i][at.row * at.columns + at.column];
        sum[4 * i] += other.x;
        sum[4 * i + 1] += other.y;
        sum[4 * i + 2] += other.z;
        sum[4 * i + 3] += other.w;
      }
    __syncthreads();
    live = half;
  }
}

// Adds rows begin + at.row, then every at.rows-th, before `end` of one column to `sum`, `ahead` of
// them in flight at once.
template <class T, unsigned ahead = rows_per_thread, int width>
__device__ inline void add_rows(const T* from, std::size_t pitch, unsigned begin, unsigned end,
                                const Place& at, float (&sum)[width]) {
  const unsigned step = at.rows * ahead;
  for (unsigned first = begin + at.row; first < end; first += step) {
    Packed<T, width> packed[ahead];  // 0 after the end
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      const unsigned row = first + j * at.rows;
      if (row < end) packed[j] = read<width>(from + row * pitch);
    }
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      float x[width];
      unpack(packed[j], x);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += x[i];
    }
  }
}

// The argument of a kernel with column sums: the result and the memory of its two stages.
template <class T>
struct ColumnSums {
  T* sums;           // [columns vectors]
  unsigned rows;     // of the matrix
  unsigned columns;  // vectors of T
  unsigned rows_per_block;
  float* partial;          // [row blocks][columns vectors]
  std::uint32_t* tickets;  // one for each column block

  __device__ unsigned column() const { return blockIdx.y * blockDim.x + threadIdx.x; }
  __device__ unsigned begin() const { return blockIdx.x * rows_per_block; }
  __device__ unsigned end() const {
    return rows - begin() < rows_per_block ? rows : begin() + rows_per_block;
  }
};

// Both stages, from each thread's sum of its column; the whole grid calls it.
template <class T, int width>
__device__ inline void finish_column_sums(const ColumnSums<T>& into, float (&sum)[width]) {
  const std::size_t channels = std::size_t{into.columns} * width;
  sum_column(sum, Place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y});
  if (threadIdx.y == 0 && into.column() < into.columns)
    store_quads(into.partial + blockIdx.x * channels + std::size_t{into.column()} * width, sum);
  if (!last_block(into.tickets + blockIdx.y, gridDim.x)) return;

  const unsigned first = blockIdx.y * blockDim.x;  // the block's columns
  const unsigned columns = into.columns - first < blockDim.x ? into.columns - first : blockDim.x;
  const unsigned quads = columns * width / 4, thread = threadIdx.y * blockDim.x + threadIdx.x;
  const Place place{thread % quads, thread / quads, quads, blockDim.x * blockDim.y / quads};
  const std::size_t channel = std::size_t{first} * width + place.column * 4;
  const bool mine = place.row < place.rows;
  float total[4] = {};
  if (mine) add_rows<float, 8>(into.partial + channel, channels, 0, gridDim.x, place, total);
  sum_column(total, place);
  if (mine && place.row == 0) store(into.sums + channel, total);
}

inline constexpr unsigned most_columns = 32;  // vectors of a block

// The threads of a block: all column vectors, up to `most`, by rows.
inline dim3 block_over(unsigned columns, unsigned most) {
  const unsigned x = columns < most ? columns : most;
  return dim3(x, column_threads / x);
}

// The number of row blocks, for the least latency: as many partial sums as rows that each adds, but
// at least 8192 elements in up to 256 channels, and with the column blocks of 16 bits at most four
// for each of an H200's 132 multiprocessors.
inline unsigned row_blocks(std::int64_t rows, std::int64_t channels) {
  const std::int64_t by_work = rows * (channels < 256 ? channels : 256) / 8192;
  const std::int64_t by_device = 4 * 132 / ((channels + 255) / 256);
  const auto even = static_cast<std::int64_t>(std::sqrt(static_cast<double>(rows)));
  const std::int64_t blocks = std::min({by_work, by_device, even});
  return static_cast<unsigned>(blocks > 1 ? blocks : 1);
}

// For `rows` rows in up to `most_blocks` blocks, which `workspace` has room for; `channels` is
// above 0.
template <class T>
ColumnSums<T> column_sums_into(const char* name, void* sums, unsigned rows, unsigned most_blocks,
                               std::int64_t channels, void* workspace, std::uint32_t* tickets) {
  return {.sums = static_cast<T*>(sums),
          .rows = rows,
          .columns = index32(name, "channels", channels, vector_width<T>),
          .rows_per_block = blocks_for(rows, most_blocks),
          .partial = static_cast<float*>(workspace),
          .tickets = tickets};
}

template <class T>
LaunchShape launch_shape(const ColumnSums<T>& into, cudaStream_t stream) {
  const dim3 block = block_over(into.columns, most_columns);
  const unsigned blocks = into.rows_per_block > 0 ? blocks_for(into.rows, into.rows_per_block) : 1;
  return {
      .grid = dim3(blocks, blocks_for(into.columns, block.x)), .block = block, .stream = stream};
}

// Rows of each operand in flight at once: as F says where more would spill.
template <class F>
inline constexpr unsigned rows_ahead = rows_per_thread;
template <class F>
requires requires {
  F::rows_ahead;
}
inline constexpr unsigned rows_ahead<F> = F::rows_ahead;

// y[r][c] = f(a[r][c], b[r][c]) and the sums of y's columns, in one pass: reading y for them would
// be a third more. y may be a or b, as each element is read and written by one thread: no
// __restrict__.
template <class T, class F>
__global__ void __launch_bounds__(column_threads, 4)
    elementwise_sums(const T* a, const T* b, T* y, ColumnSums<T> into, F f) {
  await_previous();
  constexpr int width = vector_width<T>;
  constexpr unsigned ahead = rows_ahead<F>;
  float sum[width] = {};
  const unsigned end = into.column() < into.columns ? into.end() : 0;
  for (unsigned first = into.begin() + threadIdx.y; first < end; first += blockDim.y * ahead) {
    Packed<T, width> from_a[ahead], from_b[ahead];  // 0 after the end
    const auto place = [&](unsigned j) {
      return (std::size_t{first + j * blockDim.y} * into.columns + into.column()) * width;
    };
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      if (first + j * blockDim.y >= end) continue;
      from_a[j] = read<width>(a + place(j));
      from_b[j] = read<width>(b + place(j));
    }
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      if (first + j * blockDim.y >= end) continue;
      float x[width], z[width];
      unpack(from_a[j], x);
      unpack(from_b[j], z);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        x[i] = f(x[i], z[i]);
        sum[i] += x[i];
      }
      store(y + place(j), x);
    }
  }
  finish_column_sums(into, sum);
}

template <class T, class F>
void launch_elementwise_sums(const char* name, const void* a, const void* b, void* y, void* sums,
                             std::int64_t rows, std::int64_t channels, void* workspace,
                             std::uint32_t* tickets, cudaStream_t stream) {
  if (channels == 0) return;
  const auto into = column_sums_into<T>(name, sums, index32(name, "rows", rows),
                                        row_blocks(rows, channels), channels, workspace, tickets);
  launch_next(name, elementwise_sums<T, F>, launch_shape(into, stream), static_cast<const T*>(a),
              static_cast<const T*>(b), static_cast<T*>(y), into, F{});
}

}  // namespace warpstep::cuda

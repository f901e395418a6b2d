// Matrices of [rows, channels] and vectors of [channels]: the bias behind a convolution or a matrix
// product, and its gradient. Both walk the matrix with a block of x column vectors by y rows, so
// that a thread stays in its column: one load of the bias, and no division. Rows lie side by side,
// and so the block reads one stretch of memory where all columns fit into it.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned rows_a_thread = 4;  // in flight at once

// Reads and writes y once, 4 bytes an element of 16 bits: bound by memory.
template <class T>
__global__ void __launch_bounds__(threads)
    bias_relu_kernel(T* __restrict__ y, const T* __restrict__ bias, bool relu, unsigned rows,
                     unsigned columns) {
  constexpr int width = vector_width<T>;
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float shift[width] = {};
  if (bias != nullptr) load(bias + std::size_t{column} * width, shift);
  const unsigned first = blockIdx.x * (blockDim.y * rows_a_thread) + threadIdx.y;
  Packed<T, width> packed[rows_a_thread];
#pragma unroll
  for (unsigned j = 0; j < rows_a_thread; ++j) {
    const std::size_t row = first + j * blockDim.y;
    if (row < rows) packed[j] = read<width>(y + (row * columns + column) * width);
  }
#pragma unroll
  for (unsigned j = 0; j < rows_a_thread; ++j) {
    const std::size_t row = first + j * blockDim.y;
    if (row >= rows) continue;
    float x[width];
    unpack(packed[j], x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      x[i] += shift[i];
      if (relu) x[i] = x[i] > 0 ? x[i] : 0;
    }
    store(y + (row * columns + column) * width, x);
  }
}

// The place of the calling thread in `rows` rows of `columns` threads; those beyond, which have
// row >= rows, only keep the barriers company.
struct Place {
  unsigned column, row, columns, rows;
};

// Several words of 16 bytes.
template <int width>
__device__ inline void store_quads(float* to, const float (&from)[width]) {
#pragma unroll
  for (int i = 0; i < width; i += 4) {
    const float quad[4] = {from[i], from[i + 1], from[i + 2], from[i + 3]};
    store(to + i, quad);
  }
}

// Sums the threads of each column, as a tree over the rows: in row 0 when it returns. The whole
// block calls it.
template <int width>
__device__ inline void sum_column(float (&sum)[width], const Place& at) {
  __shared__ float4 tile[width / 4][threads / 2];
  __syncthreads();  // readers of an earlier call have left
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

// Adds rows begin + at.row, then every at.rows-th, before `end` of one column to `sum`.
template <class T, int width>
__device__ inline void add_rows(const T* from, std::size_t pitch, unsigned begin, unsigned end,
                                const Place& at, float (&sum)[width]) {
  const unsigned step = at.rows * rows_a_thread;
  for (unsigned first = begin + at.row; first < end; first += step) {
    Packed<T, width> packed[rows_a_thread];  // 0 behind the end
#pragma unroll
    for (unsigned j = 0; j < rows_a_thread; ++j) {
      const unsigned row = first + j * at.rows;
      if (row < end) packed[j] = read<width>(from + row * pitch);
    }
#pragma unroll
    for (unsigned j = 0; j < rows_a_thread; ++j) {
      float x[width];
      unpack(packed[j], x);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += x[i];
    }
  }
}

// Reads x once: 131072 x 32 in f16 are 8.4 MB, 2 us. Few rows (128 x 2048) are bound by latency,
// which more blocks over the columns hide. What blocks leave for the last one is at most 256 KB,
// as it reads alone: 64 K floats, some 3 us; usually 264 x 32 floats, 34 KB.
template <class T>
__global__ void __launch_bounds__(threads, 4)
    column_sums_kernel(const T* __restrict__ x, T* __restrict__ sums, unsigned rows,
                       unsigned rows_a_block, unsigned columns, float* partial,
                       std::uint32_t* ticket) {
  constexpr int width = vector_width<T>;
  const std::size_t channels = std::size_t{columns} * width;
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  const unsigned begin = blockIdx.x * rows_a_block;
  const unsigned end = rows - begin < rows_a_block ? rows : begin + rows_a_block;
  float sum[width] = {};
  const Place at{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  if (column < columns) add_rows<T>(x + std::size_t{column} * width, channels, begin, end, at, sum);
  sum_column(sum, at);
  if (threadIdx.y == 0 && column < columns)
    store_quads(partial + blockIdx.x * channels + std::size_t{column} * width, sum);
  if (!last_block(ticket)) return;

  const unsigned quads = static_cast<unsigned>(channels / 4), size = blockDim.x * blockDim.y;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned across = quads < size ? quads : size;
  const Place place{thread % across, thread / across, across, size / across};
  for (unsigned first = 0; first < quads; first += across) {
    const unsigned quad = first + place.column;
    const bool mine = place.row < place.rows && quad < quads;
    float total[4] = {};
    if (mine)
      add_rows<float>(partial + std::size_t{quad} * 4, channels, 0, gridDim.x, place, total);
    sum_column(total, place);
    if (mine && place.row == 0) store(sums + std::size_t{quad} * 4, total);
  }
}

// Threads of a block: as many column vectors as there are, up to `most`, by rows.
dim3 block_over(unsigned columns, unsigned most) {
  const unsigned x = columns < most ? columns : most;
  return dim3(x, threads / x);
}

// A matrix is cut into so many blocks of rows that each has 8192 elements or more in up to 256
// channels, there are two for each of an H200's 132 multiprocessors, and the last block has no more
// than 64 K floats to add.
unsigned row_blocks(std::int64_t rows, std::int64_t channels) {
  const std::int64_t by_work = rows * (channels < 256 ? channels : 256) / 8192;
  const std::int64_t by_rest = 65536 / channels;
  std::int64_t blocks = by_work < 264 ? by_work : 264;
  if (blocks > by_rest) blocks = by_rest;
  return static_cast<unsigned>(blocks > 1 ? blocks : 1);
}

}  // namespace

void bias_relu(void* y, const void* bias, bool relu, std::int64_t rows, std::int64_t channels,
               DType dtype, cudaStream_t stream) {
  dispatch("bias_relu", dtype, [&]<class T>() {
    if (rows == 0 || channels == 0 || (bias == nullptr && !relu)) return;
    const unsigned columns = index32("bias_relu", "channels", channels, vector_width<T>);
    const unsigned count = index32("bias_relu", "rows", rows);
    const dim3 block = block_over(columns, threads);
    const dim3 grid(blocks_for(count, block.y * rows_a_thread), blocks_for(columns, block.x));
    launch("bias_relu", bias_relu_kernel<T>, {.grid = grid, .block = block, .stream = stream},
           static_cast<T*>(y), static_cast<const T*>(bias), relu, count, columns);
  });
}

std::size_t column_sums_workspace(std::int64_t rows, std::int64_t channels) {
  if (channels == 0) return 0;
  return row_blocks(rows, channels) * static_cast<std::size_t>(channels) * sizeof(float);
}

void column_sums(const void* x, void* sums, std::int64_t rows, std::int64_t channels, DType dtype,
                 void* workspace, std::uint32_t* ticket, cudaStream_t stream) {
  dispatch("column_sums", dtype, [&]<class T>() {
    if (channels == 0) return;
    const unsigned columns = index32("column_sums", "channels", channels, vector_width<T>);
    const unsigned count = index32("column_sums", "rows", rows);
    const unsigned rows_a_block = blocks_for(count, row_blocks(rows, channels));
    const dim3 block = block_over(columns, 32);
    const dim3 grid(rows_a_block > 0 ? blocks_for(count, rows_a_block) : 1,
                    blocks_for(columns, block.x));
    launch("column_sums", column_sums_kernel<T>, {.grid = grid, .block = block, .stream = stream},
           static_cast<const T*>(x), static_cast<T*>(sums), count, rows_a_block, columns,
           static_cast<float*>(workspace), ticket);
  });
}

}  // namespace warpstep::cuda

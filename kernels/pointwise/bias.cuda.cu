// Matrices of [rows, channels] and vectors of [channels]: the bias behind a convolution or a matrix
// product, and its gradient. Both walk the matrix with a block of x column vectors by y rows, so
// that a thread stays in its column: one load of the bias, and no division. Rows lie side by side,
// and so the block reads one stretch of memory where all columns fit into it.
#include "kernels/pointwise/column_sums.cuh"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = column_threads;

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

// Reads x once: 131072 x 32 in f16 are 8.4 MB, 2 us. Few rows (128 x 2048) are bound by latency,
// which more blocks over the columns hide.
template <class T>
__global__ void __launch_bounds__(column_threads, 4)
    column_sums_kernel(const T* __restrict__ x, ColumnSums<T> into) {
  constexpr int width = vector_width<T>;
  const std::size_t channels = std::size_t{into.columns} * width;
  float sum[width] = {};
  const Place at{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  if (into.column() < into.columns)
    add_rows<T>(x + std::size_t{into.column()} * width, channels, into.begin(), into.end(), at,
                sum);
  finish_column_sums(into, sum);
}

// Reads d_y and y and writes d_x: 131072 x 8 in f16 are 6.3 MB, 1.5 us; a pass over d_x for its
// sums would be a third more. d_x may be d_y, as each element is read and written by one thread: no
// __restrict__.
template <class T>
__global__ void __launch_bounds__(column_threads)
    relu_grad_sums_kernel(const T* d_y, const T* y, T* d_x, ColumnSums<T> into) {
  constexpr int width = vector_width<T>;
  float sum[width] = {};
  const unsigned end = into.column() < into.columns ? into.end() : 0;
  for (unsigned first = into.begin() + threadIdx.y; first < end;
       first += blockDim.y * rows_a_thread) {
    Packed<T, width> from_d_y[rows_a_thread], from_y[rows_a_thread];  // 0 behind the end
    const auto place = [&](unsigned j) {
      return (std::size_t{first + j * blockDim.y} * into.columns + into.column()) * width;
    };
#pragma unroll
    for (unsigned j = 0; j < rows_a_thread; ++j) {
      if (first + j * blockDim.y >= end) continue;
      from_d_y[j] = read<width>(d_y + place(j));
      from_y[j] = read<width>(y + place(j));
    }
#pragma unroll
    for (unsigned j = 0; j < rows_a_thread; ++j) {
      float d[width], of[width];
      unpack(from_d_y[j], d);
      unpack(from_y[j], of);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        d[i] = of[i] > 0 ? d[i] : 0;
        sum[i] += d[i];
      }
      if (first + j * blockDim.y < end) store(d_x + place(j), d);
    }
  }
  finish_column_sums(into, sum);
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
    const auto into = column_sums_into<T>("column_sums", sums, index32("column_sums", "rows", rows),
                                          row_blocks(rows, channels), channels, workspace, ticket);
    launch("column_sums", column_sums_kernel<T>, launch_shape(into, stream),
           static_cast<const T*>(x), into);
  });
}

void relu_grad_sums(const void* d_y, const void* y, void* d_x, void* sums, std::int64_t rows,
                    std::int64_t channels, DType dtype, void* workspace, std::uint32_t* ticket,
                    cudaStream_t stream) {
  dispatch("relu_grad_sums", dtype, [&]<class T>() {
    if (channels == 0) return;
    const auto into =
        column_sums_into<T>("relu_grad_sums", sums, index32("relu_grad_sums", "rows", rows),
                            row_blocks(rows, channels), channels, workspace, ticket);
    launch("relu_grad_sums", relu_grad_sums_kernel<T>, launch_shape(into, stream),
           static_cast<const T*>(d_y), static_cast<const T*>(y), static_cast<T*>(d_x), into);
  });
}

}  // namespace warpstep::cuda

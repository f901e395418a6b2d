// Kernels that treat every element alone, and bias and column sums over rows of channels. All are
// bound by memory: their time is the bytes of inputs and outputs over the bandwidth (4.3 TB/s
// measured for a copy on an H200; figures: bench/RECORDS.md). So loads and stores have 16 bytes,
// and enough loads are in flight: by Little's law 4.8 TB/s at a latency of about 700 ns need 26 KB
// per multiprocessor. A thread here issues all its loads, 64 bytes, before it uses the first, so
// 400 of the 2048 resident threads suffice.

#include "kernels/pointwise/pointwise.cuda.h"

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/pointwise/column_sums.cuh"
#include "kernels/pointwise/elementwise.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned pointwise_threads = elementwise_threads;

struct ReluOf {
  static constexpr bool binary = false;
  static constexpr unsigned least_blocks_of_bf16 = 4;  // for 6 ptxas spills two bytes on sm_90
  __device__ float operator()(float x, float) const { return rectified(x); }
};
struct ReluGradOf {
  static constexpr bool binary = true;
  __device__ float operator()(float d_y, float y) const { return y <= 0 ? 0 : d_y; }
};
struct SumOf {
  static constexpr bool binary = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};

constexpr unsigned tile_pixels = 512;

struct Affine {
  float scale[4], shift[4];
};

// 3 bytes in and 16 out per pixel for RGB to 8 channels of 16 bits: 128 images of 32x32 are 2.5 MB,
// 0.6 us. Pixels of 3 bytes are not aligned to words, so a block copies its 512 pixels (always a
// multiple of 16 bytes) to shared memory with loads of 16 bytes; each thread then stores one vector
// of 16 bytes, next to those of its neighbours. Pixels in f32 are handled the same way, 12 bytes
// per pixel.
template <class T, class X>
__global__ void __launch_bounds__(pointwise_threads)
    normalize_kernel(const X* __restrict__ x, T* __restrict__ y, unsigned pixels, int channels,
                     unsigned vectors_per_pixel, Affine affine) {
  await_previous();
  constexpr int width = vector_width<T>;
  __shared__ uint4 tile[tile_pixels * 4 * sizeof(X) / 16];
  const unsigned first = blockIdx.x * tile_pixels;
  const unsigned here = pixels - first < tile_pixels ? pixels - first : tile_pixels;
  constexpr unsigned elements_per_word = 16 / sizeof(X);
  const unsigned elements = here * static_cast<unsigned>(channels);
  const X* from = x + std::size_t{first} * static_cast<unsigned>(channels);
  auto* staged = reinterpret_cast<X*>(tile);
#pragma unroll 2  // enough for 512 pixels of bytes or RGB in f32; more would spill on sm_80
  for (unsigned i = threadIdx.x; i < elements / elements_per_word; i += pointwise_threads)
    tile[i] = reinterpret_cast<const uint4*>(from)[i];
  const unsigned rest = elements / elements_per_word * elements_per_word + threadIdx.x;
  if (rest < elements) staged[rest] = from[rest];
  __syncthreads();
  T* to = y + std::size_t{first} * vectors_per_pixel * width;
  for (unsigned v = threadIdx.x; v < here * vectors_per_pixel; v += pointwise_threads) {
    const unsigned pixel = vectors_per_pixel == 1 ? v : v / vectors_per_pixel;
    const bool holds_channels = vectors_per_pixel == 1 || v % vectors_per_pixel == 0;
    float z[width] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (!holds_channels || c >= channels) continue;
      const auto value = staged[pixel * static_cast<unsigned>(channels) + static_cast<unsigned>(c)];
      z[c] = fmaf(static_cast<float>(value), affine.scale[c], affine.shift[c]);
    }
    store(to + std::size_t{v} * width, z);
  }
}

template <std::size_t bytes>
struct Element;
template <>
struct Element<1> {
  using Type = std::uint8_t;
};
template <>
struct Element<2> {
  using Type = std::uint16_t;
};
template <>
struct Element<4> {
  using Type = std::uint32_t;
};

struct RowsCopy {
  unsigned items, columns, per_row;  // items of y, elements per row, items per row of y
  std::int64_t x_pitch, y_pitch;
  Divider row;  // by per_row
};

// One item of N elements of y per thread: 16 bytes if both pitches allow it, else one element. An
// item that begins in a row of x and ends after its columns is cut off there.
template <class E, int N>
__global__ void __launch_bounds__(pointwise_threads)
    copy_rows_kernel(const E* __restrict__ x, E* __restrict__ y, RowsCopy copy) {
  await_previous();
  unsigned item = blockIdx.x * pointwise_threads + threadIdx.x;
  if (item >= copy.items) return;
  const std::int64_t row = copy.row.split(item);
  const unsigned column = item * N;
  const E* from = x + row * copy.x_pitch + column;
  E* to = y + row * copy.y_pitch + column;
  if constexpr (N == 1) {
    *to = column < copy.columns ? *from : E{0};
  } else {
    uint4 word{};
    if (column < copy.columns) word = *reinterpret_cast<const uint4*>(from);
    if (column < copy.columns && column + N > copy.columns) {
      E elements[N];
      std::memcpy(elements, &word, sizeof word);
#pragma unroll
      for (unsigned i = 0; i < N; ++i)
        if (column + i >= copy.columns) elements[i] = 0;
      std::memcpy(&word, elements, sizeof word);
    }
    *reinterpret_cast<uint4*>(to) = word;
  }
}

template <std::size_t element_bytes>
void launch_copy_rows(const void* x, std::int64_t x_pitch, void* y, std::int64_t y_pitch,
                      std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  using E = typename Element<element_bytes>::Type;
  constexpr std::int64_t width = 16 / element_bytes;
  const bool wide = x_pitch % width == 0 && y_pitch % width == 0;
  const auto kernel = wide ? copy_rows_kernel<E, static_cast<int>(width)> : copy_rows_kernel<E, 1>;
  const std::int64_t per_row = wide ? y_pitch / width : y_pitch;
  const unsigned items = index32("copy_rows", "items", rows * per_row);
  const RowsCopy copy{.items = items,
                      .columns = index32("copy_rows", "columns", columns),
                      .per_row = static_cast<unsigned>(per_row),
                      .x_pitch = x_pitch,
                      .y_pitch = y_pitch,
                      .row = Divider(static_cast<unsigned>(per_row))};
  launch_next(
      "copy_rows", kernel,
      {.grid = blocks_for(items, pointwise_threads), .block = pointwise_threads, .stream = stream},
      static_cast<const E*>(x), static_cast<E*>(y), copy);
}

}  // namespace

void relu(const void* x, void* y, std::int64_t count, DType dtype, cudaStream_t stream) {
  launch_elementwise<ReluOf>("relu", x, nullptr, y, count, dtype, stream);
}

void relu_grad(const void* d_y, const void* y, void* d_x, std::int64_t count, DType dtype,
               cudaStream_t stream) {
  launch_elementwise<ReluGradOf>("relu_grad", d_y, y, d_x, count, dtype, stream);
}

void add(const void* a, const void* b, void* y, std::int64_t count, DType dtype,
         cudaStream_t stream) {
  launch_elementwise<SumOf>("add", a, b, y, count, dtype, stream);
}

namespace {

template <class X>
void launch_normalize(const NormalizeShape& shape, const X* x, void* y, DType dtype,
                      cudaStream_t stream) {
  dispatch("normalize", dtype, [&]<class T>() {
    if (shape.pixels == 0) return;
    if (shape.channels < 1 || shape.channels > 4)
      refuse_size("normalize", "channels", shape.channels, 4, 1);
    const unsigned vectors_per_pixel =
        index32("normalize", "channels of y", shape.pitch, vector_width<T>);
    const unsigned pixels = index32("normalize", "pixels", shape.pixels);
    Affine affine{};
    for (std::size_t c = 0; c < 4; ++c) {
      affine.scale[c] = shape.scale[c];
      affine.shift[c] = shape.shift[c];
    }
    launch_next(
        "normalize", normalize_kernel<T, X>,
        {.grid = blocks_for(pixels, tile_pixels), .block = pointwise_threads, .stream = stream}, x,
        static_cast<T*>(y), pixels, shape.channels, vectors_per_pixel, affine);
  });
}

}  // namespace

void normalize(const NormalizeShape& shape, const std::uint8_t* x, void* y, DType dtype,
               cudaStream_t stream) {
  launch_normalize(shape, x, y, dtype, stream);
}

void normalize(const NormalizeShape& shape, const float* x, void* y, DType dtype,
               cudaStream_t stream) {
  launch_normalize(shape, x, y, dtype, stream);
}

void copy_rows(const void* x, std::int64_t x_pitch, void* y, std::int64_t y_pitch,
               std::int64_t rows, std::int64_t columns, std::size_t element_bytes,
               cudaStream_t stream) {
  if (rows == 0 || y_pitch == 0) return;
  switch (element_bytes) {
    case 1: return launch_copy_rows<1>(x, x_pitch, y, y_pitch, rows, columns, stream);
    case 2: return launch_copy_rows<2>(x, x_pitch, y, y_pitch, rows, columns, stream);
    case 4: return launch_copy_rows<4>(x, x_pitch, y, y_pitch, rows, columns, stream);
    default:
      refuse_size("copy_rows", "bytes per element", static_cast<std::int64_t>(element_bytes), 4, 1);
  }
}

// Bias and column sums for rows that are not whole vectors, or not padded as their sums are. One
// element at a time: no common network has such shapes.

namespace {

template <class T>
__global__ void __launch_bounds__(pointwise_threads)
    bias_relu_unaligned_kernel(T* y, const T* bias, bool relu, std::int64_t count,
                               std::int64_t channels) {
  await_previous();
  for (std::int64_t i = std::int64_t{blockIdx.x} * pointwise_threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * pointwise_threads) {
    float value = widen(y[i]);
    if (bias) value += widen(bias[i % channels]);
    if (relu) value = rectified(value);
    y[i] = Narrow<T>::one(value);
  }
}

// One thread per channel, the rows in order; 0 for channels beyond those of a row.
template <class T>
__global__ void __launch_bounds__(pointwise_threads)
    column_sums_unaligned_kernel(const T* x, std::int64_t pitch, T* sums, std::int64_t rows,
                                 std::int64_t channels) {
  await_previous();
  const std::int64_t channel = std::int64_t{blockIdx.x} * pointwise_threads + threadIdx.x;
  if (channel >= channels) return;
  float sum = 0;
  if (channel < pitch)
    for (std::int64_t row = 0; row < rows; ++row) sum += widen(x[row * pitch + channel]);
  sums[channel] = Narrow<T>::one(sum);
}

unsigned blocks(std::int64_t count) {
  const std::int64_t wanted = (count + pointwise_threads - 1) / pointwise_threads;
  return static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
}

}  // namespace

void bias_relu_unaligned(void* y, const void* bias, bool relu, std::int64_t rows,
                         std::int64_t channels, DType dtype, cudaStream_t stream) {
  const std::int64_t count = rows * channels;
  if (count == 0) return;
  dispatch("bias_relu", dtype, [&]<class T>() {
    launch_next("bias_relu", bias_relu_unaligned_kernel<T>,
                {.grid = blocks(count), .block = pointwise_threads, .stream = stream},
                static_cast<T*>(y), static_cast<const T*>(bias), relu, count, channels);
  });
}

void column_sums_unaligned(const void* x, std::int64_t pitch, void* sums, std::int64_t rows,
                           std::int64_t channels, DType dtype, cudaStream_t stream) {
  if (channels == 0) return;
  dispatch("column_sums", dtype, [&]<class T>() {
    const auto grid = static_cast<unsigned>((channels + pointwise_threads - 1) / pointwise_threads);
    launch_next("column_sums", column_sums_unaligned_kernel<T>,
                {.grid = grid, .block = pointwise_threads, .stream = stream},
                static_cast<const T*>(x), pitch, static_cast<T*>(sums), rows, channels);
  });
}

// Matrices of [rows, channels] and vectors of [channels]: the bias after a convolution or a matrix
// product, and its gradient. Both read the matrix with a block of x column vectors by y rows, so
// that a thread stays in its column: one load of the bias, and no division. Rows are contiguous, so
// a block reads one stretch of memory if all columns fit into it.

namespace {

// Reads and writes y once, 4 bytes per 16-bit element: bound by memory.
template <class T>
__global__ void __launch_bounds__(column_threads)
    bias_relu_kernel(T* __restrict__ y, const T* __restrict__ bias, bool relu, unsigned rows,
                     unsigned columns) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float shift[width] = {};
  if (bias != nullptr) load(bias + std::size_t{column} * width, shift);
  const unsigned first = blockIdx.x * (blockDim.y * rows_per_thread) + threadIdx.y;
  Packed<T, width> packed[rows_per_thread];
#pragma unroll
  for (unsigned j = 0; j < rows_per_thread; ++j) {
    const std::size_t row = first + j * blockDim.y;
    if (row < rows) packed[j] = read<width>(y + (row * columns + column) * width);
  }
#pragma unroll
  for (unsigned j = 0; j < rows_per_thread; ++j) {
    const std::size_t row = first + j * blockDim.y;
    if (row >= rows) continue;
    float x[width];
    unpack(packed[j], x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      x[i] += shift[i];
      if (relu) x[i] = rectified(x[i]);
    }
    store(y + (row * columns + column) * width, x);
  }
}

// Reads x once: 131072 x 32 in f16 are 8.4 MB, 2 us. Few rows (128 x 2048) are bound by latency,
// which more blocks over the columns hide.
template <class T>
__global__ void __launch_bounds__(column_threads, 4)
    column_sums_kernel(const T* __restrict__ x, ColumnSums<T> into) {
  await_previous();
  constexpr int width = vector_width<T>;
  const std::size_t channels = std::size_t{into.columns} * width;
  float sum[width] = {};
  const Place at{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  if (into.column() < into.columns)
    add_rows<T>(x + std::size_t{into.column()} * width, channels, into.begin(), into.end(), at,
                sum);
  finish_column_sums(into, sum);
}

}  // namespace

void bias_relu(void* y, const void* bias, bool relu, std::int64_t rows, std::int64_t channels,
               DType dtype, cudaStream_t stream) {
  dispatch("bias_relu", dtype, [&]<class T>() {
    if (rows == 0 || channels == 0 || (bias == nullptr && !relu)) return;
    const unsigned columns = index32("bias_relu", "channels", channels, vector_width<T>);
    const unsigned count = index32("bias_relu", "rows", rows);
    const dim3 block = block_over(columns, column_threads);
    const dim3 grid(blocks_for(count, block.y * rows_per_thread), blocks_for(columns, block.x));
    launch_next("bias_relu", bias_relu_kernel<T>, {.grid = grid, .block = block, .stream = stream},
                static_cast<T*>(y), static_cast<const T*>(bias), relu, count, columns);
  });
}

std::size_t column_sums_workspace(std::int64_t rows, std::int64_t channels) {
  if (channels == 0) return 0;
  return row_blocks(rows, channels) * static_cast<std::size_t>(channels) * sizeof(float);
}

void column_sums(const void* x, void* sums, std::int64_t rows, std::int64_t channels, DType dtype,
                 void* workspace, std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("column_sums", dtype, [&]<class T>() {
    if (channels == 0) return;
    const auto into = column_sums_into<T>("column_sums", sums, index32("column_sums", "rows", rows),
                                          row_blocks(rows, channels), channels, workspace, tickets);
    launch_next("column_sums", column_sums_kernel<T>, launch_shape(into, stream),
                static_cast<const T*>(x), into);
  });
}

std::size_t column_sums_tickets(std::int64_t channels) {
  constexpr std::int64_t a_block = most_columns * vector_width<float>;
  return static_cast<std::size_t>((channels + a_block - 1) / a_block);
}

void relu_grad_sums(const void* d_y, const void* y, void* d_x, void* sums, std::int64_t rows,
                    std::int64_t channels, DType dtype, void* workspace, std::uint32_t* tickets,
                    cudaStream_t stream) {
  dispatch("relu_grad_sums", dtype, [&]<class T>() {
    launch_elementwise_sums<T, ReluGradOf>("relu_grad_sums", d_y, y, d_x, sums, rows, channels,
                                           workspace, tickets, stream);
  });
}

}  // namespace warpstep::cuda

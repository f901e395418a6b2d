// Average pooling and its adjoint, both bound by memory. Over whole images, 256x7x7x2048 in f16,
// the pool reads 51.4 MB and writes 1 MB, 12 us; the adjoint reads 1 MB and writes 51.4 MB. An
// image has few rows for a GPU, so a block handles one image and up to 32 column vectors, and its
// threads share the rows: 2048 blocks in that example. Other windows have one thread per vector
// that is written. Computed, not measured yet; shares of the peak go to bench/RECORDS.md.
#include "kernels/pointwise/column_sums.cuh"
#include "kernels/pool/pool.cuda.h"
#include "kernels/pool/pool.cuh"

namespace warpstep::cuda {
namespace {

static_assert(pool_threads == column_threads);

// Whole images: the grid is images (x) by blocks of columns (y).
struct Images {
  unsigned pixels, columns;
  float scale;  // 1 / pixels

  __device__ unsigned column() const { return blockIdx.y * blockDim.x + threadIdx.x; }
};

template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    global_avg_pool(const T* __restrict__ x, T* __restrict__ y, Images images) {
  constexpr int width = vector_width<T>;
  const std::size_t pitch = std::size_t{images.columns} * width;
  const std::size_t own = std::size_t{images.column()} * width;
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  float sum[width] = {};
  if (images.column() < images.columns)
    add_rows<T>(x + std::size_t{blockIdx.x} * images.pixels * pitch + own, pitch, 0, images.pixels,
                place, sum);
  sum_column(sum, place);
  if (threadIdx.y > 0 || images.column() >= images.columns) return;
#pragma unroll
  for (int i = 0; i < width; ++i) sum[i] *= images.scale;
  store(y + blockIdx.x * pitch + own, sum);
}

template <class T>
__global__ void __launch_bounds__(pool_threads)
    global_avg_pool_grad(const T* __restrict__ d_y, T* __restrict__ d_x, Images images) {
  constexpr int width = vector_width<T>;
  if (images.column() >= images.columns) return;
  const std::size_t pitch = std::size_t{images.columns} * width;
  const std::size_t own = std::size_t{images.column()} * width;
  float d[width];
  load(d_y + blockIdx.x * pitch + own, d);
#pragma unroll
  for (int i = 0; i < width; ++i) d[i] *= images.scale;
  const Packed<T, width> packed = pack<T>(d);
  T* to = d_x + std::size_t{blockIdx.x} * images.pixels * pitch + own;
  for (unsigned row = threadIdx.y; row < images.pixels; row += blockDim.y)
    write(to + row * pitch, packed);
}

// Any window. Padding counts as zeros: the divisor is always the whole window. Where windows
// overlap, x is read several times, from the caches.
template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    avg_pool_any(const T* __restrict__ x, T* __restrict__ y, Pooling pool, float scale) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  const int top = at.row * pool.stride - pool.padding;
  const int left = at.column * pool.stride - pool.padding;
  const int rows = min(top + pool.window, pool.height);
  const int columns = min(left + pool.window, pool.width);
  float sum[width] = {};
  for (int row = max(top, 0); row < rows; ++row)
#pragma unroll 2
    for (int column = max(left, 0); column < columns; ++column) {
      float v[width];
      load(x + place(at, row, column, pool.height, pool.width, pool.vectors) * width, v);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += v[i];
    }
#pragma unroll
  for (int i = 0; i < width; ++i) sum[i] *= scale;
  store(y + std::size_t{thread} * width, sum);
}

// A thread gathers one vector of d_x from the windows that contain it, in order.
template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    avg_pool_grad_any(const T* __restrict__ d_y, T* __restrict__ d_x, Pooling pool, float scale) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  const Windows rows = windows_over(pool, at.row, pool.out_height);
  const Windows columns = windows_over(pool, at.column, pool.out_width);
  float sum[width] = {};
  for (int i = rows.first; i <= rows.last; ++i)
#pragma unroll 1  // unrolled it spills in f32 on one of the architectures
    for (int j = columns.first; j <= columns.last; ++j) {
      float d[width];
      load(d_y + place(at, i, j, pool.out_height, pool.out_width, pool.vectors) * width, d);
#pragma unroll
      for (int n = 0; n < width; ++n) sum[n] += d[n];
    }
#pragma unroll
  for (int n = 0; n < width; ++n) sum[n] *= scale;
  store(d_x + std::size_t{thread} * width, sum);
}

bool is_global(const PoolShape& shape) {
  return shape.window == 0 ||
         (shape.window == shape.height && shape.window == shape.width && shape.padding == 0);
}

template <class T>
Images images_of(const char* name, const PoolShape& shape) {
  const unsigned pixels = index32(name, "pixels", std::int64_t{shape.height} * shape.width);
  return {.pixels = pixels,
          .columns = index32(name, "channels", shape.channels, vector_width<T>),
          .scale = 1.0F / static_cast<float>(pixels)};
}

// A block has at most one row of threads per pixel.
LaunchShape over_images(const Images& images, unsigned batch, cudaStream_t stream) {
  dim3 block = block_over(images.columns, warp_lanes);
  if (block.y > images.pixels) block.y = images.pixels;
  return {
      .grid = dim3(batch, blocks_for(images.columns, block.x)), .block = block, .stream = stream};
}

float scale_of(const PoolShape& shape) {
  return 1.0F / static_cast<float>(shape.window * shape.window);
}

}  // namespace

void avg_pool(const PoolShape& shape, const void* x, void* y, DType dtype, cudaStream_t stream) {
  dispatch("avg_pool", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.out_height, shape.out_width, shape.channels)) return;
    const T* from = static_cast<const T*>(x);
    if (is_global(shape)) {
      const Images images = images_of<T>("avg_pool", shape);
      return launch("global_avg_pool", global_avg_pool<T>,
                    over_images(images, index32("avg_pool", "images", shape.batch), stream), from,
                    static_cast<T*>(y), images);
    }
    const Pooling pool = pooling<T>("avg_pool", shape, shape.out_height, shape.out_width);
    launch("avg_pool", avg_pool_any<T>,
           {.grid = blocks_for(pool.count, pool_threads), .block = pool_threads, .stream = stream},
           from, static_cast<T*>(y), pool, scale_of(shape));
  });
}

void avg_pool_grad(const PoolShape& shape, const void* d_y, void* d_x, DType dtype,
                   cudaStream_t stream) {
  dispatch("avg_pool_grad", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.height, shape.width, shape.channels)) return;
    const T* from = static_cast<const T*>(d_y);
    if (is_global(shape)) {
      const Images images = images_of<T>("avg_pool_grad", shape);
      return launch("global_avg_pool_grad", global_avg_pool_grad<T>,
                    over_images(images, index32("avg_pool_grad", "images", shape.batch), stream),
                    from, static_cast<T*>(d_x), images);
    }
    const Pooling pool = pooling<T>("avg_pool_grad", shape, shape.height, shape.width);
    launch("avg_pool_grad", avg_pool_grad_any<T>,
           {.grid = blocks_for(pool.count, pool_threads), .block = pool_threads, .stream = stream},
           from, static_cast<T*>(d_x), pool, scale_of(shape));
  });
}

}  // namespace warpstep::cuda

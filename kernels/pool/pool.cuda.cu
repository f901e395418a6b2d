// Max pooling and its adjoint, both bound by memory. A thread computes 16 bytes of channels of one
// pixel: 8 channels of 16 bits, whose 8 index bytes are one store. Over 128x32x32x32 in f16 the
// 2x2 pool reads 8.4 MB and writes 2.1 + 1 MB, 2.7 us. Thanks to the index, 1 byte per window, the
// adjoint reads neither x nor y (10.5 MB more): it reads 2.1 + 1 MB and writes 8.4 MB, 2.7 us; the
// sums of d_x's columns add no traffic. Measured figures go to bench/RECORDS.md.

#include "kernels/cuda/overlap.cuh"
#include "kernels/pointwise/column_sums.cuh"
#include "kernels/pointwise/pointwise.cuda.h"
#include "kernels/pool/pool.cuh"

namespace warpstep::cuda {
namespace {

static_assert(pool_threads == column_threads);

// 2x2 windows with stride 2 and no padding: four loads in flight, and no bounds to check.
template <class T>
__global__ void __launch_bounds__(pool_threads)
    max_pool_2x2(const T* __restrict__ x, T* __restrict__ y, std::uint8_t* __restrict__ index,
                 Pooling pool) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  const std::size_t right = std::size_t{pool.vectors} * width;
  const std::size_t down = right * static_cast<unsigned>(pool.width);
  const T* corner =
      x + place(at, 2 * at.row, 2 * at.column, pool.height, pool.width, pool.vectors) * width;
  const Packed<T, width> square[] = {read<width>(corner), read<width>(corner + right),
                                     read<width>(corner + down),
                                     read<width>(corner + down + right)};
  Best<width> best(0);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) best.take(square[k], k);
  const std::size_t out = std::size_t{thread} * width;
  best.finish(pool.relu, y + out, index + out);
}

// Any window. Where windows overlap, x is read several times, from the caches.
template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    max_pool_any(const T* __restrict__ x, T* __restrict__ y, std::uint8_t* __restrict__ index,
                 Pooling pool) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  const int top = at.row * pool.stride - pool.padding;
  const int left = at.column * pool.stride - pool.padding;
  const int first_row = top < 0 ? 0 : top, first_column = left < 0 ? 0 : left;
  const int rows = min(top + pool.window, pool.height);
  const int columns = min(left + pool.window, pool.width);
  // If no element is above -inf, the window's first position in the image.
  Best<width> best(static_cast<unsigned>((first_row - top) * pool.window + (first_column - left)));
  const std::size_t right = std::size_t{pool.vectors} * width;
  for (int row = first_row; row < rows; ++row) {
    const T* pixel =
        x + place(at, row, first_column, pool.height, pool.width, pool.vectors) * width;
    auto where = static_cast<unsigned>((row - top) * pool.window + (first_column - left));
#pragma unroll 2
    for (int column = first_column; column < columns; ++column, pixel += right, ++where)
      best.take(read<width>(pixel), where);
  }
  const std::size_t out = std::size_t{thread} * width;
  best.finish(pool.relu, y + out, index + out);
}

}  // namespace

void max_pool(const PoolShape& shape, const void* x, void* y, std::uint8_t* index, DType dtype,
              cudaStream_t stream) {
  dispatch("max_pool", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.out_height, shape.out_width, shape.channels)) return;
    const Pooling pool = pooling<T>("max_pool", shape, shape.out_height, shape.out_width);
    const LaunchShape over{
        .grid = blocks_for(pool.count, pool_threads), .block = pool_threads, .stream = stream};
    const auto kernel = side_by_side_2x2(shape) ? max_pool_2x2<T> : max_pool_any<T>;
    launch_next("max_pool", kernel, over, static_cast<const T*>(x), static_cast<T*>(y), index,
                pool);
  });
}

// The adjoint.

namespace {

// One vector of d_y and the window positions that it goes to.
template <int width>
struct FromWindows {
  float d[width] = {};
  unsigned where[width] = {};

  template <class T>
  __device__ void load(const T* d_y, const std::uint8_t* index, std::size_t from) {
    cuda::load(d_y + from, d);
    unpack_bytes(read<width>(index + from), where);
  }
};

// The adjoint of 2x2 windows with stride 2: a thread writes its window's four vectors, and so
// reads d_y and index once. With an odd height or width the last tiles have no window: they are 0.
template <class T, int width>
__device__ inline FromWindows<width> spread_2x2(const T* __restrict__ d_y,
                                                const std::uint8_t* __restrict__ index,
                                                T* __restrict__ d_x, const Pooling& pool,
                                                const Position& at) {
  FromWindows<width> tile;
  if (at.row < pool.out_height && at.column < pool.out_width)
    tile.load(d_y, index,
              place(at, at.row, at.column, pool.out_height, pool.out_width, pool.vectors) * width);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    const int row = 2 * at.row + static_cast<int>(k / 2);
    const int column = 2 * at.column + static_cast<int>(k % 2);
    if (row >= pool.height || column >= pool.width) continue;
    float here[width];
#pragma unroll
    for (int i = 0; i < width; ++i) here[i] = tile.where[i] == k ? tile.d[i] : 0;
    store(d_x + place(at, row, column, pool.height, pool.width, pool.vectors) * width, here);
  }
  return tile;
}

template <class T>
__global__ void __launch_bounds__(pool_threads)
    max_pool_grad_2x2(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                      T* __restrict__ d_x, Pooling pool) {
  await_previous();
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  spread_2x2<T, vector_width<T>>(d_y, index, d_x, pool, position(pool, thread));
}

// The adjoint of 3x3 windows with stride 2: a thread writes a tile of 2x2 pixels.
template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    max_pool_grad_3x3(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                      T* __restrict__ d_x, Pooling pool) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  TileWindows<T> windows;
  windows.load(d_y, index, pool, at);
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const TilePixel pixel(pool, at, p);
    if (!pixel.inside) continue;
    float sum[width];
    windows.gradient(p, sum);
    store(d_x + pixel.place * width, sum);
  }
}

// The adjoint of any window: a thread writes one vector of d_x, which it sums in f32 over the
// windows that contain it, in order: up to ceil(window / stride)^2, at most one where they do not
// overlap, none in gaps between them.
template <class T, int width>
__device__ inline void gather(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                              const Pooling& pool, const Position& at, float (&sum)[width]) {
  const Windows rows = windows_over(pool, at.row, pool.out_height);
  const Windows columns = windows_over(pool, at.column, pool.out_width);
  const int row = at.row + pool.padding, column = at.column + pool.padding;
  for (int i = rows.first; i <= rows.last; ++i)
#pragma unroll 1
    for (int j = columns.first; j <= columns.last; ++j) {
      const auto k =
          static_cast<unsigned>((row - i * pool.stride) * pool.window + (column - j * pool.stride));
      FromWindows<width> from;
      from.load(d_y, index, place(at, i, j, pool.out_height, pool.out_width, pool.vectors) * width);
#pragma unroll
      for (int n = 0; n < width; ++n) sum[n] += from.where[n] == k ? from.d[n] : 0;
    }
}

template <class T>
__global__ void __launch_bounds__(pool_threads, 4)
    max_pool_grad_any(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                      T* __restrict__ d_x, Pooling pool) {
  await_previous();
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * pool_threads + threadIdx.x;
  if (thread >= pool.count) return;
  float sum[width] = {};
  gather(d_y, index, pool, position(pool, thread), sum);
  store(d_x + std::size_t{thread} * width, sum);
}

// Both adjoints with the sums of d_x's columns. Tiles sum d_y before they spread it over four
// vectors; other windows sum the gathered d_x.
template <class T, bool tiles>
__global__ void __launch_bounds__(pool_threads, 4)
    max_pool_grad_sums_kernel(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                              T* __restrict__ d_x, Pooling pool, ColumnSums<T> into) {
  await_previous();
  constexpr int width = vector_width<T>;
  float sum[width] = {};
  const unsigned end = into.column() < into.columns ? into.end() : 0;
  for (unsigned row = into.begin() + threadIdx.y; row < end; row += blockDim.y) {
    const Position at = position(pool, row * into.columns + into.column());
    if constexpr (tiles) {
      const FromWindows<width> tile = spread_2x2<T, width>(d_y, index, d_x, pool, at);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += tile.where[i] == no_maximum ? 0 : tile.d[i];
    } else {
      float here[width] = {};
      gather(d_y, index, pool, at, here);
      store(d_x + (std::size_t{row} * into.columns + into.column()) * width, here);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += here[i];
    }
  }
  finish_column_sums(into, sum);
}

std::int64_t pixels_of(const PoolShape& shape) {
  return std::int64_t{shape.batch} * shape.height * shape.width;
}

}  // namespace

void max_pool_grad(const PoolShape& shape, const void* d_y, const std::uint8_t* index, void* d_x,
                   DType dtype, cudaStream_t stream) {
  dispatch("max_pool_grad", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.height, shape.width, shape.channels)) return;
    const bool side_by_side = side_by_side_2x2(shape), overlapping = overlapping_3x3(shape);
    const Pooling pool =
        pooling_of_gradient<T>("max_pool_grad", shape, side_by_side || overlapping);
    const LaunchShape over{
        .grid = blocks_for(pool.count, pool_threads), .block = pool_threads, .stream = stream};
    const auto kernel = side_by_side  ? max_pool_grad_2x2<T>
                        : overlapping ? max_pool_grad_3x3<T>
                                      : max_pool_grad_any<T>;
    launch_next("max_pool_grad", kernel, over, static_cast<const T*>(d_y), index,
                static_cast<T*>(d_x), pool);
  });
}

std::size_t max_pool_grad_sums_workspace(const PoolShape& shape) {
  return column_sums_workspace(pixels_of(shape), shape.channels);
}

void max_pool_grad_sums(const PoolShape& shape, const void* d_y, const std::uint8_t* index,
                        void* d_x, void* sums, DType dtype, void* workspace, std::uint32_t* tickets,
                        cudaStream_t stream) {
  if (empty(shape.batch, shape.height, shape.width, shape.channels))
    return column_sums(d_x, sums, 0, shape.channels, dtype, workspace, tickets, stream);
  dispatch("max_pool_grad_sums", dtype, [&]<class T>() {
    const bool tiles = side_by_side_2x2(shape);
    const Pooling pool = pooling_of_gradient<T>("max_pool_grad_sums", shape, tiles);
    const auto into = column_sums_into<T>("max_pool_grad_sums", sums, pool.count / pool.vectors,
                                          row_blocks(pixels_of(shape), shape.channels),
                                          shape.channels, workspace, tickets);
    const auto kernel =
        tiles ? max_pool_grad_sums_kernel<T, true> : max_pool_grad_sums_kernel<T, false>;
    launch_next("max_pool_grad_sums", kernel, launch_shape(into, stream),
                static_cast<const T*>(d_y), index, static_cast<T*>(d_x), pool, into);
  });
}

}  // namespace warpstep::cuda

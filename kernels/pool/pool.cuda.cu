// Max pooling and its adjoint: bound by memory. A thread has 16 bytes of channels of one pixel: 8
// of 16 bits, whose 8 index bytes are one store. Over 128x32x32x32 in f16 the 2x2 pool reads 8.4 MB
// and writes 2.1 + 1 MB, 2.7 us; its adjoint moves as much the other way. The index, 1 byte for 4
// elements of x, is what lets the adjoint read neither x nor y (10.5 MB more).
#include "kernels/pool/pool.cuda.h"

#include <climits>
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;

// Images as pixels of 16-byte vectors, and how a thread's number falls into image, row, column and
// vector: of y in the pool and the adjoint by tiles, of x in the adjoint by pixels.
struct Pooling {
  int height, width, out_height, out_width, window, stride, padding;
  unsigned vectors;  // a pixel
  bool relu;
  unsigned count;
  Divider by_vectors, by_width, by_height;
  Divider by_stride;
};

struct Position {
  unsigned image, vector;
  int row, column;
};

__device__ inline Position position(const Pooling& pool, unsigned thread) {
  unsigned vector = thread;
  unsigned column = pool.by_vectors.split(vector);
  unsigned row = pool.by_width.split(column);
  const unsigned image = pool.by_height.split(row);
  return {image, vector, static_cast<int>(row), static_cast<int>(column)};
}

// The vector's place among images of height x width; a row and a column inside of them.
__device__ inline std::size_t place(const Position& at, int row, int column, int height, int width,
                                    unsigned vectors) {
  const auto image_row = std::size_t{at.image} * static_cast<unsigned>(height);
  const auto pixel = (image_row + static_cast<unsigned>(row)) * static_cast<unsigned>(width);
  return (pixel + static_cast<unsigned>(column)) * vectors + at.vector;
}

// `width` index bytes as one word: 4 of f32, 8 of 16 bits.
template <int width>
__device__ inline void store_bytes(std::uint8_t* to, const unsigned (&bytes)[width]) {
  unsigned words[width / 4] = {};
#pragma unroll
  for (int i = 0; i < width; ++i) words[i / 4] |= bytes[i] << (8 * (i % 4));
  Packed<std::uint8_t, width> packed;
  std::memcpy(&packed.word, words, sizeof words);
  write(to, packed);
}

template <int width>
__device__ inline void load_bytes(const std::uint8_t* from, unsigned (&bytes)[width]) {
  const Packed<std::uint8_t, width> packed = read<width>(from);
  unsigned words[width / 4];
  std::memcpy(words, &packed.word, sizeof words);
#pragma unroll
  for (int i = 0; i < width; ++i) bytes[i] = words[i / 4] >> (8 * (i % 4)) & 255U;
}

// The maxima so far and where in the window they stand; NaN never is one.
template <int width>
struct Best {
  float value[width];
  unsigned at[width];

  __device__ explicit Best(unsigned first) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      value[i] = -INFINITY;
      at[i] = first;
    }
  }
  template <class T>
  __device__ void take(const Packed<T, width>& packed, unsigned where) {
    float x[width];
    unpack(packed, x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (!(x[i] > value[i])) continue;
      value[i] = x[i];
      at[i] = where;
    }
  }
  template <class T>
  __device__ void finish(bool relu, T* y, std::uint8_t* index) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (!relu || value[i] > 0) continue;
      value[i] = 0;
      at[i] = no_maximum;
    }
    store(y, value);
    store_bytes(index, at);
  }
};

// Windows of 2x2 side by side, no padding: four loads in flight, and no bounds to look at.
template <class T>
__global__ void __launch_bounds__(threads)
    max_pool_2x2(const T* __restrict__ x, T* __restrict__ y, std::uint8_t* __restrict__ index,
                 Pooling pool) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
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

// Any window. Where they overlap, x is read several times, from the caches.
template <class T>
__global__ void __launch_bounds__(threads, 4)
    max_pool_any(const T* __restrict__ x, T* __restrict__ y, std::uint8_t* __restrict__ index,
                 Pooling pool) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  const int top = at.row * pool.stride - pool.padding;
  const int left = at.column * pool.stride - pool.padding;
  const int first_row = top < 0 ? 0 : top, first_column = left < 0 ? 0 : left;
  const int rows = min(top + pool.window, pool.height);
  const int columns = min(left + pool.window, pool.width);
  // Where nothing is above -inf, the first position in the image.
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

// The adjoint of windows of 2x2 side by side: a thread writes its window's four vectors, and so
// reads d_y and index once. Tiles beyond the windows, where height or width is odd, are zeros.
template <class T>
__global__ void __launch_bounds__(threads)
    max_pool_grad_2x2(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                      T* __restrict__ d_x, Pooling pool) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  float d[width] = {};
  unsigned where[width] = {};
  if (at.row < pool.out_height && at.column < pool.out_width) {
    const std::size_t from =
        place(at, at.row, at.column, pool.out_height, pool.out_width, pool.vectors) * width;
    load(d_y + from, d);
    load_bytes(index + from, where);
  }
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    const int row = 2 * at.row + static_cast<int>(k / 2);
    const int column = 2 * at.column + static_cast<int>(k % 2);
    if (row >= pool.height || column >= pool.width) continue;
    float here[width];
#pragma unroll
    for (int i = 0; i < width; ++i) here[i] = where[i] == k ? d[i] : 0;
    store(d_x + place(at, row, column, pool.height, pool.width, pool.vectors) * width, here);
  }
}

// The adjoint of any window: a thread writes one vector of d_x, which it sums in f32 over the
// windows that hold it, in order: ceil(window / stride)^2 of them, at most one where they do not
// overlap, none in gaps.
template <class T>
__global__ void __launch_bounds__(threads, 4)
    max_pool_grad_any(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                      T* __restrict__ d_x, Pooling pool) {
  constexpr int width = vector_width<T>;
  const unsigned thread = blockIdx.x * threads + threadIdx.x;
  if (thread >= pool.count) return;
  const Position at = position(pool, thread);
  // The windows i with i * stride <= padded < i * stride + window.
  const auto first_of = [&](int padded) {
    const int from = padded - pool.window + pool.stride;
    return from < 0 ? 0 : static_cast<int>(pool.by_stride.quotient(static_cast<unsigned>(from)));
  };
  const auto last_of = [&](int padded, int windows) {
    return min(static_cast<int>(pool.by_stride.quotient(static_cast<unsigned>(padded))),
               windows - 1);
  };
  const int row = at.row + pool.padding, column = at.column + pool.padding;
  const int rows = last_of(row, pool.out_height), columns = last_of(column, pool.out_width);
  float sum[width] = {};
  for (int i = first_of(row); i <= rows; ++i)
#pragma unroll 1
    for (int j = first_of(column); j <= columns; ++j) {
      const auto k =
          static_cast<unsigned>((row - i * pool.stride) * pool.window + (column - j * pool.stride));
      const std::size_t from =
          place(at, i, j, pool.out_height, pool.out_width, pool.vectors) * width;
      float d[width];
      unsigned where[width];
      load(d_y + from, d);
      load_bytes(index + from, where);
#pragma unroll
      for (int n = 0; n < width; ++n) sum[n] += where[n] == k ? d[n] : 0;
    }
  store(d_x + std::size_t{thread} * width, sum);
}

// One thread for each vector of batch x height x width pixels.
template <class T>
Pooling pooling(const char* name, const PoolShape& shape, int height, int width) {
  const std::int64_t pixels = std::int64_t{shape.batch} * height * width;
  const unsigned vectors = index32(name, "channels", shape.channels, vector_width<T>);
  return {.height = shape.height,
          .width = shape.width,
          .out_height = shape.out_height,
          .out_width = shape.out_width,
          .window = shape.window,
          .stride = shape.stride,
          .padding = shape.padding,
          .vectors = vectors,
          .relu = shape.relu,
          .count = index32(name, "vectors of 16 bytes", pixels * vectors),
          .by_vectors = Divider(vectors),
          .by_width = Divider(static_cast<unsigned>(width)),
          .by_height = Divider(static_cast<unsigned>(height)),
          .by_stride = Divider(static_cast<unsigned>(shape.stride))};
}

bool side_by_side_2x2(const PoolShape& shape) {
  return shape.window == 2 && shape.stride == 2 && shape.padding == 0;
}

bool empty(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t channels) {
  return batch == 0 || height == 0 || width == 0 || channels == 0;
}

}  // namespace

void max_pool(const PoolShape& shape, const void* x, void* y, std::uint8_t* index, DType dtype,
              cudaStream_t stream) {
  dispatch("max_pool", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.out_height, shape.out_width, shape.channels)) return;
    const Pooling pool = pooling<T>("max_pool", shape, shape.out_height, shape.out_width);
    const LaunchShape over{
        .grid = blocks_for(pool.count, threads), .block = threads, .stream = stream};
    const auto kernel = side_by_side_2x2(shape) ? max_pool_2x2<T> : max_pool_any<T>;
    launch("max_pool", kernel, over, static_cast<const T*>(x), static_cast<T*>(y), index, pool);
  });
}

void max_pool_grad(const PoolShape& shape, const void* d_y, const std::uint8_t* index, void* d_x,
                   DType dtype, cudaStream_t stream) {
  dispatch("max_pool_grad", dtype, [&]<class T>() {
    if (empty(shape.batch, shape.height, shape.width, shape.channels)) return;
    const bool tiles = side_by_side_2x2(shape);
    const Pooling pool =
        pooling<T>("max_pool_grad", shape, tiles ? (shape.height + 1) / 2 : shape.height,
                   tiles ? (shape.width + 1) / 2 : shape.width);
    const LaunchShape over{
        .grid = blocks_for(pool.count, threads), .block = threads, .stream = stream};
    const auto kernel = tiles ? max_pool_grad_2x2<T> : max_pool_grad_any<T>;
    launch("max_pool_grad", kernel, over, static_cast<const T*>(d_y), index, static_cast<T*>(d_x),
           pool);
  });
}

}  // namespace warpstep::cuda

// Max pooling: bound by memory. A thread has 16 bytes of channels of one pixel: 8 of 16 bits, whose
// 8 index bytes are one store. Over 128x32x32x32 in f16 the 2x2 pool reads 8.4 MB and writes 2.1 +
// 1 MB, 2.7 us. The index, 1 byte for 4 elements of x, is what lets the adjoint read neither x nor
// y (10.5 MB more).
#include <cmath>

#include "kernels/pool/pool.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = pool_threads;

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

}  // namespace warpstep::cuda

// Shared by the pooling kernels: images as pixels of 16-byte vectors, and the map from a thread's
// number to a position in them.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {

inline constexpr unsigned pool_threads = 256;

// A launch with one thread per position: image, row, column and vector of y in the pools and in the
// adjoint of max pooling by tiles, of x in the other adjoints.
struct Pooling {
  int height, width, out_height, out_width, window, stride, padding;
  unsigned vectors;  // per pixel
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

// The index of the vector at (row, column), both inside the image, among images of height x width.
__device__ inline std::size_t place(const Position& at, int row, int column, int height, int width,
                                    unsigned vectors) {
  const auto image_row = std::size_t{at.image} * static_cast<unsigned>(height);
  const auto pixel = (image_row + static_cast<unsigned>(row)) * static_cast<unsigned>(width);
  return (pixel + static_cast<unsigned>(column)) * vectors + at.vector;
}

// The windows that contain a row, or a column, of the image: those i of `windows` with
// i * stride <= padded < i * stride + window. None where first > last.
struct Windows {
  int first, last;
};

__device__ inline Windows windows_over(const Pooling& pool, int at, int windows) {
  const int padded = at + pool.padding, from = padded - pool.window + pool.stride;
  const auto divided = [&](int n) {
    return static_cast<int>(pool.by_stride.quotient(static_cast<unsigned>(n)));
  };
  return {from < 0 ? 0 : divided(from), min(divided(padded), windows - 1)};
}

// Stores `width` index bytes as one word: 4 bytes for f32, 8 for 16 bits.
template <int width>
__device__ inline void store_bytes(std::uint8_t* to, const unsigned (&bytes)[width]) {
  unsigned words[width / 4] = {};
#pragma unroll
  for (int i = 0; i < width; ++i) words[i / 4] |= bytes[i] << (8 * (i % 4));
  Packed<std::uint8_t, width> packed;
  std::memcpy(&packed.word, words, sizeof words);
  write(to, packed);
}

// The maxima so far and their positions in the window; a NaN is above all numbers.
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
    take(x, where);
  }
  __device__ void take(const float (&x)[width], unsigned where) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (!(x[i] > value[i] || x[i] != x[i])) continue;
      value[i] = x[i];
      at[i] = where;
    }
  }
  template <class T>
  __device__ void finish(bool relu, T* y, std::uint8_t* index) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (!relu || !(value[i] <= 0)) continue;
      value[i] = 0;
      at[i] = no_maximum;
    }
    store(y, value);
    store_bytes(index, at);
  }
};

template <int width>
__device__ inline void unpack_bytes(const Packed<std::uint8_t, width>& packed,
                                    unsigned (&bytes)[width]) {
  unsigned words[width / 4];
  std::memcpy(words, &packed.word, sizeof words);
#pragma unroll
  for (int i = 0; i < width; ++i) bytes[i] = words[i / 4] >> (8 * (i % 4)) & 255U;
}

// The four windows that reach into a tile of 2x2 pixels whose first row and column are even,
// counted with the padding, of 3x3 windows with stride 2: one pixel after the other would read
// nine. Unpacked where they are used.
template <class T>
struct TileWindows {
  static constexpr int width = vector_width<T>;
  Packed<T, width> d[4];  // above and left, above, left, and at the tile's first pixel
  Packed<std::uint8_t, width> where[4];
  bool is_window[4];

  __device__ void load(const T* d_y, const std::uint8_t* index, const Pooling& pool,
                       const Position& tile) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int row = tile.row - 1 + w / 2, column = tile.column - 1 + w % 2;
      is_window[w] = row >= 0 && row < pool.out_height && column >= 0 && column < pool.out_width;
      if (!is_window[w]) continue;
      const std::size_t own =
          place(tile, row, column, pool.out_height, pool.out_width, pool.vectors) * width;
      d[w] = read<width>(d_y + own);
      where[w] = read<width>(index + own);
    }
  }
  // Of the pixel p, row by row: the sum over the windows, in order.
  __device__ void gradient(int p, float (&sum)[width]) const {
#pragma unroll
    for (int n = 0; n < width; ++n) sum[n] = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int in_row = p / 2 + 2 - w / 2 * 2, in_column = p % 2 + 2 - w % 2 * 2;
      if (in_row > 2 || in_column > 2 || !is_window[w]) continue;
      float own[width];
      unsigned at_k[width];
      unpack(d[w], own);
      unpack_bytes(where[w], at_k);
#pragma unroll
      for (int n = 0; n < width; ++n)
        sum[n] += at_k[n] == static_cast<unsigned>(in_row * 3 + in_column) ? own[n] : 0;
    }
  }
};

// The pixel p of a tile, and the number of its vector among the image's.
struct TilePixel {
  bool inside;
  std::size_t place = 0;

  __device__ TilePixel(const Pooling& pool, const Position& tile, int p) {
    const int row = 2 * tile.row - pool.padding + p / 2,
              column = 2 * tile.column - pool.padding + p % 2;
    inside = row >= 0 && row < pool.height && column >= 0 && column < pool.width;
    if (inside) place = cuda::place(tile, row, column, pool.height, pool.width, pool.vectors);
  }
};

// One thread per vector of batch x height x width pixels.
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

// One thread for each vector of x, or of the 2x2 tiles that cover it.
template <class T>
Pooling pooling_of_gradient(const char* name, const PoolShape& shape, bool tiles) {
  const auto extent = [&](int x) { return tiles ? (x + shape.padding + 1) / 2 : x; };
  return pooling<T>(name, shape, extent(shape.height), extent(shape.width));
}

inline bool side_by_side_2x2(const PoolShape& shape) {
  return shape.window == 2 && shape.stride == 2 && shape.padding == 0;
}

inline bool overlapping_3x3(const PoolShape& shape) {
  return shape.window == 3 && shape.stride == 2;
}

inline bool empty(std::int64_t batch, std::int64_t height, std::int64_t width,
                  std::int64_t channels) {
  return batch == 0 || height == 0 || width == 0 || channels == 0;
}

}  // namespace warpstep::cuda

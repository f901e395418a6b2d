// Shared by the pooling kernels: images as pixels of 16-byte vectors, and the map from a thread's
// number to a position in them.
#pragma once

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

// Launchers of the max-pooling CUDA kernels, over NHWC images; see engine/graph/ops/pool.h for what
// they compute. Channels are those stored: a multiple of 16 bytes.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// What index has where a pool with relu found nothing above 0; that of MaxPool.
inline constexpr std::uint8_t no_maximum = 255;

struct PoolShape {
  int batch = 0, height = 0, width = 0, channels = 0;  // of x
  int out_height = 0, out_width = 0;
  int window = 2, stride = 2, padding = 0;
  bool relu = false;
};
template <class Pool>  // MaxPool, AvgPool
PoolShape pool_shape(const Pool& op, const Shape& x, const Shape& y) {
  const auto extent = [](std::int64_t n) { return static_cast<int>(n); };
  PoolShape shape{.batch = extent(x[0]),
                  .height = extent(x[1]),
                  .width = extent(x[2]),
                  .channels = extent(x[3]),
                  .out_height = extent(y[1]),
                  .out_width = extent(y[2]),
                  .window = extent(op.window),
                  .stride = extent(op.stride),
                  .padding = extent(op.padding)};
  if constexpr (requires { op.relu; }) shape.relu = op.relu;
  return shape;
}

void max_pool(const PoolShape& shape, const void* x, void* y, std::uint8_t* index, DType dtype,
              cudaStream_t stream);
// Every element of d_x is written. Where windows do not overlap, one pass over d_x; elsewhere each
// element of d_x gathers from the windows that hold it, in order: the same bits every time.
void max_pool_grad(const PoolShape& shape, const void* d_y, const std::uint8_t* index, void* d_x,
                   DType dtype, cudaStream_t stream);
// max_pool_grad(), and sums [channels] of d_x over all pixels in one launch, the same bits every
// time: column_sums() says how. `workspace` holds max_pool_grad_sums_workspace() bytes.
std::size_t max_pool_grad_sums_workspace(const PoolShape& shape);
void max_pool_grad_sums(const PoolShape& shape, const void* d_y, const std::uint8_t* index,
                        void* d_x, void* sums, DType dtype, void* workspace, std::uint32_t* ticket,
                        cudaStream_t stream);

// Launchers of the average-pooling CUDA kernels, over NHWC images; see engine/graph/ops/pool.h for
// what they compute. Channels are those stored: a multiple of 16 bytes. Of PoolShape, `relu` means
// nothing here, and a window of 0 is the whole image.

// Sums in f32 in a fixed order: the same bits every time.
void avg_pool(const PoolShape& shape, const void* x, void* y, DType dtype, cudaStream_t stream);
// Every element of d_x is written; where windows overlap it is the sum of theirs, in order.
void avg_pool_grad(const PoolShape& shape, const void* d_y, void* d_x, DType dtype,
                   cudaStream_t stream);

}  // namespace warpstep::cuda

// Launchers of the pooling CUDA kernels, over NHWC images; engine/graph/ops/pool.h defines the
// arithmetic. `channels` counts the stored channels, a multiple of 16 bytes. All results are
// deterministic.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "engine/core/types.h"

namespace warpstep::cuda {

// The index where a pool with relu found no element above 0: that of MaxPool.
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
// Writes every element of d_x in one pass: each gathers from the windows that contain it, in order.
void max_pool_grad(const PoolShape& shape, const void* d_y, const std::uint8_t* index, void* d_x,
                   DType dtype, cudaStream_t stream);
// max_pool_grad() and the sums [channels] of d_x over all pixels in one launch; column_sums()
// describes the sums, their workspace and tickets.
std::size_t max_pool_grad_sums_workspace(const PoolShape& shape);
void max_pool_grad_sums(const PoolShape& shape, const void* d_y, const std::uint8_t* index,
                        void* d_x, void* sums, DType dtype, void* workspace, std::uint32_t* tickets,
                        cudaStream_t stream);

// Average pooling ignores PoolShape::relu; a window of 0 is the whole image. Sums in f32 in a fixed
// order.
void avg_pool(const PoolShape& shape, const void* x, void* y, DType dtype, cudaStream_t stream);
// Writes every element of d_x; where windows overlap it is the sum over them, in order.
void avg_pool_grad(const PoolShape& shape, const void* d_y, void* d_x, DType dtype,
                   cudaStream_t stream);

}  // namespace warpstep::cuda

// Batch norm with the max pool after it. All kernels are bound by memory; the example is
// ResNet-50's stem at 224, 256x112x112x64 in f16: x has 411 MB, what is pooled 103, its index 51.
//   forward   reads x for the statistics (norm.cuda.cu) and once for the pool: 0.98 GB where a norm
//             and a pool move 1.80. The pool takes 251 us on an H200, 2.2 TB/s: instructions bound
//             it
//   adjoint   reads d_y, index and x twice and writes d_x: 1.54 GB where two adjoints move 2.62.
//   The
//             sums take 235 us, 2.4 TB/s, d_x 289 us, 3.4 TB/s
#include "kernels/norm/norm_grad.cuh"
#include "kernels/pool/pool.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned pool_resident = 3, pool_grad_resident = 2;  // blocks per multiprocessor

// A norm's result grows with x, or falls where its scale is below 0: so the window's maximum is
// that of x, or of -x, and one number a window is normalised. Where the scale is 0 all are equal.
template <int width>
__device__ inline void directions(const float (&scale)[width], float (&to)[width]) {
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = scale[i] > 0 ? 1 : scale[i] < 0 ? -1 : 0;
}

// `matrix` has the pooled pixels.
template <class T>
__global__ void __launch_bounds__(norm_threads, pool_resident)
    norm_max_pool_pass(const T* __restrict__ x, T* __restrict__ y, std::uint8_t* __restrict__ index,
                       NormRows matrix, Pooling pool, Channels channels) {
  constexpr int width = vector_width<T>;
  if (matrix.column() >= matrix.columns) return;
  const OwnChannels<true, width> own(channels, matrix);
  float direction[width];
  directions(own.scale, direction);
  const unsigned step = gridDim.x * blockDim.y;
  for (unsigned pixel = blockIdx.x * blockDim.y + threadIdx.y; pixel < matrix.rows; pixel += step) {
    const Position at = position(pool, pixel * pool.vectors + matrix.column());
    const int top = 2 * at.row - pool.padding, left = 2 * at.column - pool.padding;
    // If no element is above -inf, the window's first position in the image.
    Best<width> best(static_cast<unsigned>((top < 0 ? -top : 0) * 3 + (left < 0 ? -left : 0)));
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      const int row = top + r;
      if (row < 0 || row >= pool.height) continue;
      const auto is_inside = [&](int c) { return left + c >= 0 && left + c < pool.width; };
      Packed<T, width> from[3];
#pragma unroll
      for (int c = 0; c < 3; ++c)
        if (is_inside(c))
          from[c] = read<width>(
              x + place(at, row, left + c, pool.height, pool.width, pool.vectors) * width);
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        if (!is_inside(c)) continue;
        float v[width];
        unpack(from[c], v);
#pragma unroll
        for (int i = 0; i < width; ++i) v[i] *= direction[i];
        best.take(v, static_cast<unsigned>(3 * r + c));
      }
    }
    // A channel with a NaN has no other results, so that the window's last element is one, too.
    const int last = min(2, pool.height - 1 - top) * 3 + min(2, pool.width - 1 - left);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      best.value[i] = widen(
          narrow<T>(fmaf(best.value[i] * direction[i] - own.mean[i], own.scale[i], own.beta[i])));
      if (best.value[i] != best.value[i]) best.at[i] = static_cast<unsigned>(last);
    }
    const std::size_t out = (std::size_t{pixel} * matrix.columns + matrix.column()) * width;
    best.finish(pool.relu, y + out, index + out);
  }
}

// What the adjoint reads of a tile of 2x2 pixels.
template <class T>
struct PooledTile {
  static constexpr int width = vector_width<T>;
  TileWindows<T> windows;
  Packed<T, width> x[4];

  __device__ PooledTile(const T* d_y, const std::uint8_t* index, const T* from_x,
                        const Pooling& pool, const Position& at) {
    windows.load(d_y, index, pool, at);
#pragma unroll
    for (int p = 0; p < 4; ++p)
      if (const TilePixel pixel(pool, at, p); pixel.inside)
        x[p] = read<width>(from_x + pixel.place * width);
  }
};

// The first pass: sums of g and g (x - mean), where g is the pool's gradient. `matrix` has the
// tiles, from the end, as norm.cuh says; `rows` are the norm's.
template <class T>
__global__ void __launch_bounds__(norm_threads, pool_grad_resident)
    norm_pool_grad_sums(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                        const T* __restrict__ x, NormRows matrix, unsigned rows, Pooling pool,
                        NormPartials partials, SumsTo<T> to) {
  constexpr int width = vector_width<T>;
  float mean[width] = {}, sum[width] = {}, product[width] = {}, of_shortcut[width] = {};
  const unsigned tiles = matrix.column() < matrix.columns ? matrix.rows : 0;
  if (tiles > 0) load_quads(to.norm.mean + std::size_t{matrix.column()} * width, mean);
  for (unsigned t = blockIdx.x * blockDim.y + threadIdx.y; t < tiles; t += gridDim.x * blockDim.y) {
    const Position at = position(pool, (tiles - 1 - t) * pool.vectors + matrix.column());
    const PooledTile<T> tile(d_y, index, x, pool, at);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      if (!TilePixel(pool, at, p).inside) continue;
      float g[width], v[width];
      tile.windows.gradient(p, g);
      unpack(tile.x[p], v);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sum[i] += g[i];
        product[i] = fmaf(g[i], v[i] - mean[i], product[i]);
      }
    }
  }
  finish_norm_sums<false>(matrix, rows, partials, to, sum, product, of_shortcut);
}

// The second pass: d_x.
template <class T>
__global__ void __launch_bounds__(norm_threads, pool_grad_resident)
    norm_pool_grad_apply(const T* __restrict__ d_y, const std::uint8_t* __restrict__ index,
                         const T* __restrict__ x, T* __restrict__ d_x, NormRows matrix,
                         Pooling pool, const float* __restrict__ means, Slopes slopes) {
  constexpr int width = vector_width<T>;
  if (matrix.column() >= matrix.columns) return;
  Line<width> line;
  line.load(means, slopes, std::size_t{matrix.column()} * width);
  for (unsigned t = blockIdx.x * blockDim.y + threadIdx.y; t < matrix.rows;
       t += gridDim.x * blockDim.y) {
    const Position at = position(pool, t * pool.vectors + matrix.column());
    const PooledTile<T> tile(d_y, index, x, pool, at);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const TilePixel pixel(pool, at, p);
      if (!pixel.inside) continue;
      float g[width];
      tile.windows.gradient(p, g);
      line.store_gradient(d_x + pixel.place * width, g, tile.x[p]);
    }
  }
}

// Of `pool`'s positions instead of the norm's rows.
NormRows over_positions(NormRows matrix, const Pooling& pool) {
  matrix.rows = pool.count / pool.vectors;
  return matrix;
}

}  // namespace

void norm_max_pool(const NormShape& norm, const PoolShape& shape, const NormPoolBuffers& buffers,
                   DType dtype, cudaStream_t stream) {
  dispatch("norm_max_pool", dtype, [&]<class T>() {
    if (is_empty(norm)) return;
    const auto pool = pooling<T>("norm_max_pool", shape, shape.out_height, shape.out_width);
    const NormRows matrix = over_positions(norm_rows<T>("norm_max_pool", norm), pool);
    launch("norm_max_pool", norm_max_pool_pass<T>,
           norm_launch(matrix, norm_pass_blocks(matrix, 1, pool_resident), stream),
           static_cast<const T*>(buffers.x), static_cast<T*>(buffers.y), buffers.index, matrix,
           pool, Channels{buffers.gamma, buffers.beta, buffers.mean, buffers.inv_std, 0});
  });
}

void norm_max_pool_grad(const NormShape& norm, const PoolShape& shape,
                        const NormPoolGradBuffers& buffers, DType dtype, void* workspace,
                        std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("norm_max_pool_grad", dtype, [&]<class T>() {
    if (is_empty(norm)) return;
    const auto pool = pooling_of_gradient<T>("norm_max_pool_grad", shape, true);
    const NormRows rows = norm_rows<T>("norm_max_pool_grad", norm),
                   matrix = over_positions(rows, pool);
    const Slopes slopes = GradSpace(norm, dtype, false).of_norm(workspace, norm);
    const auto *d_y = static_cast<const T*>(buffers.d_y), *x = static_cast<const T*>(buffers.x);
    launch("norm_pool_grad_sums", norm_pool_grad_sums<T>,
           norm_launch(matrix, norm_sum_blocks(matrix.rows, norm.channels, dtype), stream), d_y,
           buffers.index, x, matrix, rows.rows, pool,
           NormPartials{static_cast<float*>(workspace), tickets},
           SumsTo<T>{{buffers.gamma, buffers.mean, buffers.inv_std,
                      static_cast<T*>(buffers.d_gamma), static_cast<T*>(buffers.d_beta), slopes},
                     {},
                     nullptr,
                     {}});
    launch("norm_pool_grad", norm_pool_grad_apply<T>,
           norm_launch(matrix, norm_pass_blocks(matrix, 1, pool_grad_resident), stream), d_y,
           buffers.index, x, static_cast<T*>(buffers.d_x), matrix, pool, buffers.mean, slopes);
  });
}

}  // namespace warpstep::cuda

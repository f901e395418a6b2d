// One warp per row, adjacent lanes on adjacent elements. Reads x1 and x2 once (twice in the
// adjoint, the second time from the cache) and is bound by memory.
#include "cosine_embedding.cuda.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace cuda {
namespace {

using namespace warpstep::cuda;

constexpr unsigned threads = 256;
constexpr unsigned rows_per_block = threads / warp_lanes;
constexpr float square_epsilon = 1e-12F;

struct Row {
  float s1, s2, size, cosine;
};

template <class T>
__device__ inline Row row_of(const T* x1, const T* x2, unsigned columns) {
  float s1 = 0, s2 = 0, product = 0;
  for (unsigned k = threadIdx.x % warp_lanes; k < columns; k += warp_lanes) {
    const float a = widen(x1[k]), b = widen(x2[k]);
    s1 += a * a;
    s2 += b * b;
    product += a * b;
  }
  s1 = group_reduce<warp_lanes>(s1, Sum{}) + square_epsilon;
  s2 = group_reduce<warp_lanes>(s2, Sum{}) + square_epsilon;
  product = group_reduce<warp_lanes>(product, Sum{});
  const float size = sqrtf(s1) * sqrtf(s2);  // s1 s2 of two rows of zeros underflows f32
  return {s1, s2, size, product / size};
}

template <class T>
__global__ void __launch_bounds__(threads)
    rows_kernel(unsigned rows, unsigned columns, float margin, const T* __restrict__ x1,
                const T* __restrict__ x2, const std::int32_t* __restrict__ y,
                float* __restrict__ losses) {
  const unsigned n = blockIdx.x * rows_per_block + threadIdx.x / warp_lanes;
  if (n >= rows) return;  // the whole warp
  const std::size_t begin = std::size_t{n} * columns;
  const float cosine = row_of(x1 + begin, x2 + begin, columns).cosine;
  if (threadIdx.x % warp_lanes != 0) return;
  const bool too_near = y[n] == -1 && !(cosine <= margin);  // NaN too
  losses[n] = y[n] == 1 ? 1 - cosine : too_near ? cosine - margin : 0;
}

// One block, in a fixed order.
__global__ void __launch_bounds__(threads)
    mean_kernel(unsigned rows, const float* __restrict__ losses, float* loss) {
  float sum = 0;
  for (unsigned n = threadIdx.x; n < rows; n += threads) sum += losses[n];
  sum = block_reduce(sum, 0.0F, Sum{});
  if (threadIdx.x == 0) *loss = sum / static_cast<float>(rows);
}

template <class T>
__global__ void __launch_bounds__(threads)
    grad_kernel(unsigned rows, unsigned columns, float margin, const T* __restrict__ x1,
                const T* __restrict__ x2, const std::int32_t* __restrict__ y,
                const float* __restrict__ d_loss, T* __restrict__ d_x1, T* __restrict__ d_x2) {
  const unsigned n = blockIdx.x * rows_per_block + threadIdx.x / warp_lanes;
  if (n >= rows) return;
  const std::size_t begin = std::size_t{n} * columns;
  const Row row = row_of(x1 + begin, x2 + begin, columns);
  const float d_row = *d_loss / static_cast<float>(rows);
  const float d_cosine = y[n] == 1 ? -d_row : y[n] == -1 && row.cosine >= margin ? d_row : 0;
  for (unsigned k = threadIdx.x % warp_lanes; k < columns; k += warp_lanes) {
    const float a = widen(x1[begin + k]), b = widen(x2[begin + k]);
    d_x1[begin + k] = narrow<T>(d_cosine * (b / row.size - row.cosine * a / row.s1));
    d_x2[begin + k] = narrow<T>(d_cosine * (a / row.size - row.cosine * b / row.s2));
  }
}

}  // namespace

void cosine_embedding(const CosineShape& shape, const void* x1, const void* x2,
                      const std::int32_t* y, float* loss, float* workspace, cudaStream_t stream) {
  const unsigned rows = index32("cosine_embedding", "rows", shape.rows);
  const unsigned columns = index32("cosine_embedding", "columns", shape.columns);
  dispatch("cosine_embedding", shape.dtype, [&]<class T>() {
    launch("cosine_embedding", rows_kernel<T>,
           {.grid = blocks_for(rows, rows_per_block), .block = threads, .stream = stream}, rows,
           columns, shape.margin, static_cast<const T*>(x1), static_cast<const T*>(x2), y,
           workspace);
  });
  launch("cosine_embedding", mean_kernel, {.grid = 1, .block = threads, .stream = stream}, rows,
         workspace, loss);
}

void cosine_embedding_grad(const CosineShape& shape, const void* x1, const void* x2,
                           const std::int32_t* y, const float* d_loss, void* d_x1, void* d_x2,
                           cudaStream_t stream) {
  const unsigned rows = index32("cosine_embedding_grad", "rows", shape.rows);
  const unsigned columns = index32("cosine_embedding_grad", "columns", shape.columns);
  dispatch("cosine_embedding_grad", shape.dtype, [&]<class T>() {
    launch("cosine_embedding_grad", grad_kernel<T>,
           {.grid = blocks_for(rows, rows_per_block), .block = threads, .stream = stream}, rows,
           columns, shape.margin, static_cast<const T*>(x1), static_cast<const T*>(x2), y, d_loss,
           static_cast<T*>(d_x1), static_cast<T*>(d_x2));
  });
}

}  // namespace cuda

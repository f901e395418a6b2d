// The bias's kernels for rows that are no whole vectors: outputs of convolutions in groups whose
// channels are not padded. One element at a time; nothing that is trained in earnest has such
// shapes.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/pointwise/unaligned.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;

template <class T>
__global__ void __launch_bounds__(threads)
    bias_relu_kernel(T* y, const T* bias, bool relu, std::int64_t count, std::int64_t channels) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    float value = widen(y[i]);
    if (bias) value += widen(bias[i % channels]);
    if (relu) value = value < 0.0F ? 0.0F : value;
    y[i] = Narrow<T>::one(value);
  }
}

// A thread a channel, the rows in order.
template <class T>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(const T* x, std::int64_t pitch, T* sums, std::int64_t rows,
                       std::int64_t channels) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (channel >= channels) return;
  float sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) sum += widen(x[row * pitch + channel]);
  sums[channel] = Narrow<T>::one(sum);
}

unsigned blocks(std::int64_t count) {
  const std::int64_t wanted = (count + threads - 1) / threads;
  return static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
}

}  // namespace

void bias_relu_unaligned(void* y, const void* bias, bool relu, std::int64_t rows,
                         std::int64_t channels, DType dtype, cudaStream_t stream) {
  const std::int64_t count = rows * channels;
  if (count == 0) return;
  dispatch("bias_relu", dtype, [&]<class T>() {
    launch("bias_relu", bias_relu_kernel<T>,
           {.grid = blocks(count), .block = threads, .stream = stream}, static_cast<T*>(y),
           static_cast<const T*>(bias), relu, count, channels);
  });
}

void column_sums_unaligned(const void* x, std::int64_t pitch, void* sums, std::int64_t rows,
                           std::int64_t channels, DType dtype, cudaStream_t stream) {
  if (channels == 0) return;
  dispatch("column_sums", dtype, [&]<class T>() {
    const auto grid = static_cast<unsigned>((channels + threads - 1) / threads);
    launch("column_sums", column_sums_kernel<T>, {.grid = grid, .block = threads, .stream = stream},
           static_cast<const T*>(x), pitch, static_cast<T*>(sums), rows, channels);
  });
}

}  // namespace warpstep::cuda

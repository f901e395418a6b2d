// Dropout and its adjoint. A draw is ten rounds of two multiplications for four elements, about 25
// instructions per element, which take as long as its 4 bytes in f16: 128x2048 are 1 MB, 0.3 us,
// bound equally by memory and by the multipliers. No mask is stored: the adjoint draws the same
// numbers again. Computed, not measured yet; shares of the peak go to bench/RECORDS.md.
#include "kernels/dropout/dropout.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned dropout_threads = 256;

struct Drop {
  std::uint64_t count;  // logical elements
  std::uint32_t items, columns, layer;
  std::uint32_t threshold;  // an element whose 24 bits are below it is dropped
  float scale;
  Divider row;  // divides by the items per row
};

// The words of draws 4 * index and the three behind it.
__device__ inline uint4 draw_four(const Drop& drop, const StepState& state, std::uint64_t index) {
  return random_words(static_cast<unsigned>(index), static_cast<unsigned>(index >> 32), drop.layer,
                      static_cast<unsigned>(Purpose::dropout), static_cast<unsigned>(state.seed),
                      static_cast<unsigned>(state.seed >> 32));
}

__device__ inline unsigned word_of(const uint4& words, unsigned i) {
  const unsigned low = (i & 1) != 0 ? words.y : words.x, high = (i & 1) != 0 ? words.w : words.z;
  return (i & 2) != 0 ? high : low;
}

// One item of N elements per thread: 16 bytes, or one element where rows are not whole vectors. An
// item needs N / 4 draws if its first is a multiple of 4, else one more.
template <class T, int N>
__global__ void __launch_bounds__(dropout_threads)
    dropout_kernel(const T* x, const StepState* __restrict__ state, T* y, Drop drop) {
  const unsigned item = blockIdx.x * dropout_threads + threadIdx.x;
  if (item >= drop.items) return;
  unsigned column = item;
  const unsigned row = drop.row.split(column);
  column *= N;
  const StepState now = *state;
  const std::uint64_t first =
      (static_cast<std::uint64_t>(now.draw) - 1) * drop.count +  // first_draw()
      std::uint64_t{row} * drop.columns + column;
  const auto phase = static_cast<unsigned>(first % 4);
  float v[N];
  if constexpr (N == 1)
    v[0] = widen(x[item]);
  else
    load(x + std::size_t{item} * N, v);
  uint4 words{};
#pragma unroll
  for (unsigned i = 0; i < N; ++i) {
    if (i == 0 || (phase + i) % 4 == 0) words = draw_four(drop, now, (first + i) / 4);
    const bool kept = word_of(words, (phase + i) % 4) >> 8 >= drop.threshold;
    v[i] = kept && column + i < drop.columns ? v[i] * drop.scale : 0;
  }
  if constexpr (N == 1)
    y[item] = narrow<T>(v[0]);
  else
    store(y + std::size_t{item} * N, v);
}

template <class T, int N>
void launch_dropout(const DropoutShape& shape, const void* x, const StepState* state, void* y,
                    cudaStream_t stream) {
  const unsigned a_row = index32("dropout", "elements of a row", shape.stored, N);
  const unsigned items = index32("dropout", "items", shape.rows * a_row);
  const Drop drop{.count = static_cast<std::uint64_t>(shape.rows * shape.columns),
                  .items = items,
                  .columns = index32("dropout", "columns", shape.columns),
                  .layer = shape.layer,
                  .threshold = static_cast<std::uint32_t>(std::ceil(shape.rate * 0x1p24)),
                  .scale = static_cast<float>(1 / (1 - shape.rate)),
                  .row = Divider(a_row)};
  launch("dropout", dropout_kernel<T, N>,
         {.grid = blocks_for(items, dropout_threads), .block = dropout_threads, .stream = stream},
         static_cast<const T*>(x), state, static_cast<T*>(y), drop);
}

}  // namespace

void dropout(const DropoutShape& shape, const void* x, const StepState* state, void* y, DType dtype,
             cudaStream_t stream) {
  dispatch("dropout", dtype, [&]<class T>() {
    if (shape.rows == 0 || shape.stored == 0) return;
    if (shape.stored % vector_width<T> == 0)
      launch_dropout<T, vector_width<T>>(shape, x, state, y, stream);
    else
      launch_dropout<T, 1>(shape, x, state, y, stream);
  });
}

}  // namespace warpstep::cuda

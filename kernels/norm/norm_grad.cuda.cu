// The adjoint of batch norm; norm.cuda.cu has the arithmetic's forward half and what bounds both.
//   with a relu  the first pass reads d_y, x and y; the second reads the same and writes d_x: 0.67
//                ms for seven tensors of the example there. Where the first pass writes the
//                shortcut's gradient (d_y with the mask applied), the second reads that instead of
//                d_y and y
#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

template <class T>
struct Sources {
  const T *d_y, *second, *x, *y;
};

// One vector of each source. gradient() gives g = d_y (+ second), and 0 where y is not above 0.
template <class T, bool masked, bool two>
struct Loaded {
  static constexpr int width = vector_width<T>;
  Packed<T, width> d_y, second, x, y;

  __device__ void load(const Sources<T>& from, std::size_t place) {
    d_y = read<width>(from.d_y + place);
    if constexpr (two) second = read<width>(from.second + place);
    x = read<width>(from.x + place);
    if constexpr (masked) y = read<width>(from.y + place);
  }
  __device__ void gradient(float (&g)[width]) const {
    unpack(d_y, g);
    float other[width];
    if constexpr (two) {
      unpack(second, other);
#pragma unroll
      for (int i = 0; i < width; ++i) g[i] += other[i];
    }
    if constexpr (masked) {
      unpack(y, other);
#pragma unroll
      for (int i = 0; i < width; ++i) g[i] = other[i] > 0 ? g[i] : 0;
    }
  }
};

template <bool masked, bool two>
inline constexpr unsigned rows_at_once = masked || two ? 2 : 4;  // whose loads are in flight
constexpr unsigned resident_grad = 2;                            // blocks per multiprocessor

// The coefficients of d_x = scale (g - shift - slope (x - mean)).
struct Slopes {
  float *scale, *shift, *slope;  // [channels]
};

template <class T>
struct SumsTo {
  const float *gamma, *mean, *inv_std;
  T *d_gamma, *d_beta, *d_shortcut;
  Slopes slopes;
  OfRanks of_ranks;
};

// Writes the slopes of one channel: with n rows, shift = sum g / n and slope = inv_std^2 sum g (x -
// mean) / n.
__device__ inline void write_slopes(const Slopes& to, const float* gamma, const float* inv_stds,
                                    float count, std::size_t channel, float sum, float product) {
  const float inv_std = inv_stds[channel];
  to.scale[channel] = gamma[channel] * inv_std;
  to.shift[channel] = sum / count;
  to.slope[channel] = product / count * inv_std * inv_std;
}

template <class T>
__device__ inline void write_sums(const SumsTo<T>& to, unsigned rows, std::size_t channel,
                                  float sum, float product) {
  to.d_beta[channel] = narrow<T>(sum);
  to.d_gamma[channel] = narrow<T>(product * to.inv_std[channel]);
  if (to.of_ranks.memory == nullptr) {
    write_slopes(to.slopes, to.gamma, to.inv_std, static_cast<float>(rows), channel, sum, product);
  } else {
    to.of_ranks.of(to.of_ranks.own, 0, channel) = sum;
    to.of_ranks.of(to.of_ranks.own, 1, channel) = product;
  }
}

// The slopes from the sums of all ranks, a thread per channel.
__global__ void batch_norm_grad_join(OfRanks of_ranks, NormRows matrix,
                                     const float* __restrict__ gamma,
                                     const float* __restrict__ inv_std, Slopes to) {
  const unsigned channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= of_ranks.channels) return;
  float sum = 0, product = 0;
  for (unsigned r = 0; r < of_ranks.ranks; ++r) {
    sum += of_ranks.of(r, 0, channel);
    product += of_ranks.of(r, 1, channel);
  }
  write_slopes(to, gamma, inv_std,
               static_cast<float>(matrix.rows) * static_cast<float>(of_ranks.ranks), channel, sum,
               product);
}

// The first pass: sums of g and g (x - mean) over the rows. With a shortcut it also writes
// d_shortcut = g, and sums g as stored (rounded to T), as that is what the second pass reads.
template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident_grad)
    batch_norm_grad_sums(Sources<T> from, NormRows matrix, NormPartials partials, SumsTo<T> to) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two>;
  const std::size_t own = std::size_t{matrix.column()} * width;
  float mean[width] = {}, sum[width] = {}, product[width] = {};
  if (matrix.column() < matrix.columns) load_quads(to.mean + own, mean);
  Loaded<T, masked, two> loaded[at_once];
  walk<width, at_once, true>(
      matrix, [&](unsigned j, std::size_t place) { loaded[j].load(from, place); },
      [&](unsigned j, std::size_t place) {
        float g[width], x[width];
        loaded[j].gradient(g);
        if (to.d_shortcut != nullptr) {
          const Packed<T, width> stored = pack<T>(g);
          write(to.d_shortcut + place, stored);
          unpack(stored, g);
        }
        unpack(loaded[j].x, x);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          sum[i] += g[i];
          product[i] = fmaf(g[i], x[i] - mean[i], product[i]);
        }
      });
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  sum_column(sum, place);
  sum_column(product, place);
  if (threadIdx.y == 0 && matrix.column() < matrix.columns) {
    store_quads(partials.of(matrix, blockIdx.x, 0, own), sum);
    store_quads(partials.of(matrix, blockIdx.x, 1, own), product);
  }
  if (!last_block(partials.tickets + blockIdx.y, gridDim.x)) return;

  const LastPlace last(matrix, width);
  float sums[4] = {}, products[4] = {};
  if (last.active) {
    const std::size_t pitch = 2 * std::size_t{matrix.channels};
    add_rows<float>(partials.of(matrix, 0, 0, last.channel), pitch, 0, gridDim.x, last.place, sums);
    add_rows<float>(partials.of(matrix, 0, 1, last.channel), pitch, 0, gridDim.x, last.place,
                    products);
  }
  sum_column(sums, last.place);
  sum_column(products, last.place);
  if (!last.active || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_sums(to, matrix.rows, last.channel + i, sums[i], products[i]);
}

// The second pass: d_x.
template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident_grad)
    batch_norm_grad_apply(Sources<T> from, T* __restrict__ d_x, NormRows matrix,
                          const float* __restrict__ means, Slopes slopes) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two>;
  float mean[width] = {}, scale[width] = {}, shift[width] = {}, slope[width] = {};
  if (matrix.column() < matrix.columns) {
    const std::size_t channel = std::size_t{matrix.column()} * width;
    load_quads(means + channel, mean);
    load_quads(slopes.scale + channel, scale);
    load_quads(slopes.shift + channel, shift);
    load_quads(slopes.slope + channel, slope);
  }
  Loaded<T, masked, two> loaded[at_once];
  walk<width, at_once, false>(
      matrix, [&](unsigned j, std::size_t place) { loaded[j].load(from, place); },
      [&](unsigned j, std::size_t place) {
        float g[width], x[width];
        loaded[j].gradient(g);
        unpack(loaded[j].x, x);
#pragma unroll
        for (int i = 0; i < width; ++i)
          g[i] = scale[i] * fmaf(mean[i] - x[i], slope[i], g[i] - shift[i]);
        store(d_x + place, g);
      });
}

template <class T>
auto sums_kernel(bool masked, bool two) {
  if (masked)
    return two ? batch_norm_grad_sums<T, true, true> : batch_norm_grad_sums<T, true, false>;
  return two ? batch_norm_grad_sums<T, false, true> : batch_norm_grad_sums<T, false, false>;
}

template <class T>
auto apply_kernel(bool masked, bool two) {
  if (masked)
    return two ? batch_norm_grad_apply<T, true, true> : batch_norm_grad_apply<T, true, false>;
  return two ? batch_norm_grad_apply<T, false, true> : batch_norm_grad_apply<T, false, false>;
}

}  // namespace

std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype) {
  return (partial_floats(shape, dtype) + rank_floats(shape) +
          3 * static_cast<std::size_t>(shape.channels)) *
         sizeof(float);
}

namespace {

Slopes slopes_in(const NormShape& shape, DType dtype, void* workspace) {
  float* memory =
      static_cast<float*>(workspace) + partial_floats(shape, dtype) + rank_floats(shape);
  return {memory, memory + shape.channels, memory + 2 * shape.channels};
}

template <class T>
Sources<T> sources_of(const NormGradBuffers& buffers) {
  return {static_cast<const T*>(buffers.d_y), static_cast<const T*>(buffers.second),
          static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.y)};
}

void launch_grad_sums(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                      void* workspace, std::uint32_t* tickets, OfRanks of_ranks,
                      cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    const Sources<T> from = sources_of<T>(buffers);
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch("batch_norm_grad_sums", sums_kernel<T>(from.y != nullptr, from.second != nullptr),
           norm_launch(matrix, blocks, stream), from, matrix,
           NormPartials{static_cast<float*>(workspace), tickets},
           SumsTo<T>{buffers.gamma, buffers.mean, buffers.inv_std, static_cast<T*>(buffers.d_gamma),
                     static_cast<T*>(buffers.d_beta), static_cast<T*>(buffers.d_shortcut),
                     slopes_in(shape, dtype, workspace), of_ranks});
  });
}

void launch_grad_apply(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                       void* workspace, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    Sources<T> from = sources_of<T>(buffers);
    if (buffers.d_shortcut != nullptr)
      from = {static_cast<const T*>(buffers.d_shortcut), nullptr, from.x, nullptr};
    const bool masked = from.y != nullptr, two = from.second != nullptr;
    const unsigned at_once = masked || two ? rows_at_once<true, true> : rows_at_once<false, false>;
    launch("batch_norm_grad", apply_kernel<T>(masked, two),
           norm_launch(matrix, norm_pass_blocks(matrix, at_once, resident_grad), stream), from,
           static_cast<T*>(buffers.d_x), matrix, buffers.mean, slopes_in(shape, dtype, workspace));
  });
}

}  // namespace

void batch_norm_grad(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                     void* workspace, std::uint32_t* tickets, cudaStream_t stream) {
  launch_grad_sums(shape, buffers, dtype, workspace, tickets, {}, stream);
  launch_grad_apply(shape, buffers, dtype, workspace, stream);
}

void batch_norm_grad_own_sums(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                              void* workspace, std::uint32_t* tickets, int rank,
                              cudaStream_t stream) {
  launch_grad_sums(shape, buffers, dtype, workspace, tickets,
                   of_ranks(shape, dtype, workspace, rank), stream);
}

void batch_norm_grad_rest(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                          void* workspace, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    launch("batch_norm_grad_join", batch_norm_grad_join, join_launch(shape, stream),
           of_ranks(shape, dtype, workspace, 0), norm_rows<T>("batch_norm_grad", shape),
           buffers.gamma, buffers.inv_std, slopes_in(shape, dtype, workspace));
  });
  launch_grad_apply(shape, buffers, dtype, workspace, stream);
}

}  // namespace warpstep::cuda

// The adjoint of batch norms: bound by memory. With a relu the first pass reads d_y, x and y, the
// second the same and writes d_x: ResNet-50's stem at 224, 256x112x112x64 in f16, is 411 MB a
// tensor, 0.67 ms for seven. Where the first pass writes the shortcut's gradient, which is d_y with
// its mask, the second reads that in place of what it was made of. Not yet run on a GPU; shares of
// the peak go to bench/RECORDS.md.
#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

template <class T>
struct Sources {
  const T *d_y, *second, *x, *y;
};

// One vector of each, and g of them: d_y (+ second), 0 where y is not above 0.
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

// Rows whose loads are in flight at once, and blocks a multiprocessor.
template <bool masked, bool two>
inline constexpr unsigned rows_at_once = masked || two ? 2 : 4;
constexpr unsigned resident = 2;

// d_x = scale (g - shift - slope (x - mean)).
struct Slopes {
  float *scale, *shift, *slope;  // [channels]
};

template <class T>
struct SumsTo {
  const float *gamma, *mean, *inv_std;
  T *d_gamma, *d_beta, *d_shortcut;
  Slopes slopes;
};

// Of a channel: with n rows, shift = sum g / n and slope = inv_std^2 sum g (x - mean) / n.
template <class T>
__device__ inline void write_sums(const SumsTo<T>& to, unsigned rows, std::size_t channel,
                                  float sum, float product) {
  const float inv_std = to.inv_std[channel], count = static_cast<float>(rows);
  to.d_beta[channel] = narrow<T>(sum);
  to.d_gamma[channel] = narrow<T>(product * inv_std);
  to.slopes.scale[channel] = to.gamma[channel] * inv_std;
  to.slopes.shift[channel] = sum / count;
  to.slopes.slope[channel] = product / count * inv_std * inv_std;
}

// Sums of g and g (x - mean) over the rows; d_shortcut = g where there is one, and then the sums
// are those of g as it is stored, which d_x is made from.
template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident)
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
  if (last.mine) {
    const std::size_t pitch = 2 * std::size_t{matrix.channels};
    add_rows<float>(partials.of(matrix, 0, 0, last.channel), pitch, 0, gridDim.x, last.place, sums);
    add_rows<float>(partials.of(matrix, 0, 1, last.channel), pitch, 0, gridDim.x, last.place,
                    products);
  }
  sum_column(sums, last.place);
  sum_column(products, last.place);
  if (!last.mine || last.place.row > 0) return;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    write_sums(to, matrix.rows, last.channel + i, sums[i], products[i]);
}

template <class T, bool masked, bool two>
__global__ void __launch_bounds__(norm_threads, resident)
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

// The workspace: what blocks leave, then the slopes.
std::size_t partial_floats(const NormShape& shape, DType dtype) {
  return norm_sum_blocks(shape.rows, shape.channels, dtype) * 2 *
         static_cast<std::size_t>(shape.channels);
}

}  // namespace

std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype) {
  return (partial_floats(shape, dtype) + 3 * static_cast<std::size_t>(shape.channels)) *
         sizeof(float);
}

void batch_norm_grad(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                     void* workspace, std::uint32_t* tickets, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (shape.rows == 0 || shape.channels == 0) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    auto* memory = static_cast<float*>(workspace);
    float* behind = memory + partial_floats(shape, dtype);
    const Slopes slopes{behind, behind + shape.channels, behind + 2 * shape.channels};
    Sources<T> from{static_cast<const T*>(buffers.d_y), static_cast<const T*>(buffers.second),
                    static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.y)};
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch("batch_norm_grad_sums", sums_kernel<T>(from.y != nullptr, from.second != nullptr),
           norm_launch(matrix, blocks, stream), from, matrix, NormPartials{memory, tickets},
           SumsTo<T>{buffers.gamma, buffers.mean, buffers.inv_std, static_cast<T*>(buffers.d_gamma),
                     static_cast<T*>(buffers.d_beta), static_cast<T*>(buffers.d_shortcut), slopes});
    if (buffers.d_shortcut != nullptr)
      from = {static_cast<const T*>(buffers.d_shortcut), nullptr, from.x, nullptr};
    const bool masked = from.y != nullptr, two = from.second != nullptr;
    const unsigned at_once = masked || two ? rows_at_once<true, true> : rows_at_once<false, false>;
    launch("batch_norm_grad", apply_kernel<T>(masked, two),
           norm_launch(matrix, norm_pass_blocks(matrix, at_once, resident), stream), from,
           static_cast<T*>(buffers.d_x), matrix, buffers.mean, slopes);
  });
}

}  // namespace warpstep::cuda

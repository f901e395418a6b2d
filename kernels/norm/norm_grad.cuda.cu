// The adjoint of batch norm; norm.cuda.cu has the arithmetic's forward half and what bounds both.
//   with a relu  the first pass reads d_y, x and y; the second reads the same and writes d_x: 0.67
//                ms for seven tensors of the example there. Where the first pass writes the
//                shortcut's gradient (d_y with the mask applied), the second reads that instead of
//                d_y and y
//   both norms   of a residual block's end (layer1.0 of that network: 411 MB a tensor in f16): the
//                first pass reads the shortcut's x, too, the second writes its gradient over the
//                one between the two norms: eleven tensors where two adjoints move thirteen
#include "kernels/norm/norm_grad.cuh"

namespace warpstep::cuda {
namespace {

template <class T>
struct Sources {
  const T *d_y, *second, *x, *y;
  const T* shortcut;  // what the shortcut's norm reads
};

// One vector of each source. gradient() gives g = d_y (+ second), and 0 where y is at most 0.
template <class T, bool masked, bool two, bool both>
struct Loaded {
  static constexpr int width = vector_width<T>;
  Packed<T, width> d_y, second, x, y, shortcut;

  __device__ void load(const Sources<T>& from, std::size_t place) {
    d_y = read<width>(from.d_y + place);
    if constexpr (two) second = read<width>(from.second + place);
    x = read<width>(from.x + place);
    if constexpr (masked) y = read<width>(from.y + place);
    if constexpr (both) shortcut = read<width>(from.shortcut + place);
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
      for (int i = 0; i < width; ++i) g[i] = other[i] <= 0 ? 0 : g[i];
    }
  }
};

template <bool masked, bool two, bool both>
inline constexpr unsigned rows_at_once =
    masked || two || both ? 2 : 4;          // whose loads are in flight
constexpr unsigned norm_grad_resident = 2;  // blocks per multiprocessor

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
// d_shortcut = g, and sums g as stored (rounded to T), as that is what the second pass reads; of
// both norms it sums g (x - mean) of the shortcut as well, in partial sums after the others.
template <class T, bool masked, bool two, bool both>
__global__ void __launch_bounds__(norm_threads, norm_grad_resident)
    batch_norm_grad_sums(Sources<T> from, NormRows matrix, NormPartials partials, SumsTo<T> to) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two, both>;
  const std::size_t own = std::size_t{matrix.column()} * width;
  float mean[width] = {}, sum[width] = {}, product[width] = {};
  float shortcut_mean[width] = {}, shortcut_product[width] = {};
  if (matrix.column() < matrix.columns) {
    load_quads(to.norm.mean + own, mean);
    if constexpr (both) load_quads(to.shortcut.mean + own, shortcut_mean);
  }
  Loaded<T, masked, two, both> loaded[at_once];
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
        if constexpr (both) {
          unpack(loaded[j].shortcut, x);
#pragma unroll
          for (int i = 0; i < width; ++i)
            shortcut_product[i] = fmaf(g[i], x[i] - shortcut_mean[i], shortcut_product[i]);
        }
      });
  finish_norm_sums<both>(matrix, matrix.rows, partials, to, sum, product, shortcut_product);
}

// Where one norm's gradient goes.
template <class T>
struct ApplyTo {
  T* d_x;
  const float* means;
  Slopes slopes;
};

// The second pass: d_x. Of both norms, a thread writes the shortcut's where it has read g.
template <class T, bool masked, bool two, bool both>
__global__ void __launch_bounds__(norm_threads, norm_grad_resident)
    batch_norm_grad_apply(Sources<T> from, NormRows matrix, ApplyTo<T> norm, ApplyTo<T> shortcut) {
  constexpr int width = vector_width<T>;
  constexpr unsigned at_once = rows_at_once<masked, two, both>;
  Line<width> of_norm, of_shortcut;
  if (matrix.column() < matrix.columns) {
    const std::size_t channel = std::size_t{matrix.column()} * width;
    of_norm.load(norm.means, norm.slopes, channel);
    if constexpr (both) of_shortcut.load(shortcut.means, shortcut.slopes, channel);
  }
  Loaded<T, masked, two, both> loaded[at_once];
  walk<width, at_once, false>(
      matrix, [&](unsigned j, std::size_t place) { loaded[j].load(from, place); },
      [&](unsigned j, std::size_t place) {
        float g[width];
        loaded[j].gradient(g);
        of_norm.store_gradient(norm.d_x + place, g, loaded[j].x);
        if constexpr (both) of_shortcut.store_gradient(shortcut.d_x + place, g, loaded[j].shortcut);
      });
}

// Both norms: a shortcut's gradient is written, so that there is a relu.
template <class T>
auto sums_kernel(bool masked, bool two, bool both) {
  if (both)
    return two ? batch_norm_grad_sums<T, true, true, true>
               : batch_norm_grad_sums<T, true, false, true>;
  if (masked)
    return two ? batch_norm_grad_sums<T, true, true, false>
               : batch_norm_grad_sums<T, true, false, false>;
  return two ? batch_norm_grad_sums<T, false, true, false>
             : batch_norm_grad_sums<T, false, false, false>;
}

template <class T>
auto apply_kernel(bool masked, bool two, bool both) {
  if (both) return batch_norm_grad_apply<T, false, false, true>;
  if (masked)
    return two ? batch_norm_grad_apply<T, true, true, false>
               : batch_norm_grad_apply<T, true, false, false>;
  return two ? batch_norm_grad_apply<T, false, true, false>
             : batch_norm_grad_apply<T, false, false, false>;
}

bool is_of_both(const NormGradBuffers& buffers) {
  return buffers.shortcut.x != nullptr;
}

template <class T>
Sources<T> sources_of(const NormGradBuffers& buffers) {
  return {static_cast<const T*>(buffers.d_y), static_cast<const T*>(buffers.second),
          static_cast<const T*>(buffers.x), static_cast<const T*>(buffers.y),
          static_cast<const T*>(buffers.shortcut.x)};
}

}  // namespace

std::size_t batch_norm_grad_workspace(const NormShape& shape, DType dtype, bool shortcut_norm) {
  return GradSpace(shape, dtype, shortcut_norm).floats * sizeof(float);
}

void batch_norm_grad_sum(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                         void* workspace, std::uint32_t* tickets, int rank, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    const Sources<T> from = sources_of<T>(buffers);
    const bool both = is_of_both(buffers);
    const GradSpace space(shape, dtype, both);
    const auto& shortcut = buffers.shortcut;
    const unsigned blocks = norm_sum_blocks(shape.rows, shape.channels, dtype);
    launch(
        "batch_norm_grad_sums", sums_kernel<T>(from.y != nullptr, from.second != nullptr, both),
        norm_launch(matrix, blocks, stream), from, matrix,
        NormPartials{static_cast<float*>(workspace), tickets},
        SumsTo<T>{{buffers.gamma, buffers.mean, buffers.inv_std, static_cast<T*>(buffers.d_gamma),
                   static_cast<T*>(buffers.d_beta), space.of_norm(workspace, shape)},
                  {shortcut.gamma, shortcut.mean, shortcut.inv_std,
                   static_cast<T*>(shortcut.d_gamma), static_cast<T*>(shortcut.d_beta),
                   both ? space.of_shortcut(workspace, shape) : Slopes{}},
                  static_cast<T*>(buffers.d_shortcut),
                  of_ranks(shape, dtype, workspace, rank)});
  });
}

void batch_norm_grad_merge(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                           void* workspace, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    launch("batch_norm_grad_join", batch_norm_grad_join, join_launch(shape, stream),
           of_ranks(shape, dtype, workspace, 0), norm_rows<T>("batch_norm_grad", shape),
           buffers.gamma, buffers.inv_std,
           GradSpace(shape, dtype, false).of_norm(workspace, shape));
  });
}

void batch_norm_grad_finish(const NormShape& shape, const NormGradBuffers& buffers, DType dtype,
                            void* workspace, cudaStream_t stream) {
  dispatch("batch_norm_grad", dtype, [&]<class T>() {
    if (is_empty(shape)) return;
    const NormRows matrix = norm_rows<T>("batch_norm_grad", shape);
    Sources<T> from = sources_of<T>(buffers);
    if (buffers.d_shortcut != nullptr)
      from = {static_cast<const T*>(buffers.d_shortcut), nullptr, from.x, nullptr, from.shortcut};
    const bool masked = from.y != nullptr, two = from.second != nullptr, both = is_of_both(buffers);
    const GradSpace space(shape, dtype, both);
    const unsigned at_once =
        masked || two || both ? rows_at_once<true, true, true> : rows_at_once<false, false, false>;
    launch("batch_norm_grad", apply_kernel<T>(masked, two, both),
           norm_launch(matrix, norm_pass_blocks(matrix, at_once, norm_grad_resident), stream), from,
           matrix,
           ApplyTo<T>{static_cast<T*>(buffers.d_x), buffers.mean, space.of_norm(workspace, shape)},
           ApplyTo<T>{static_cast<T*>(buffers.d_shortcut), buffers.shortcut.mean,
                      both ? space.of_shortcut(workspace, shape) : Slopes{}});
  });
}

}  // namespace warpstep::cuda

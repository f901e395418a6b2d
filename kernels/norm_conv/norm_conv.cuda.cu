// The parts of fused norms that cuDNN's engines do not compute: statistics from the channels' sums
// (a few numbers per channel, bound by the launch), and d_x of a norm, one pass per norm, which no
// engine accepts as a prologue. That pass is bound by memory: it reads g and x and writes d_x,
// 308 MB for 256 images of 56x56x64 in f16, 0.07 ms on an H200 (computed, not measured
// yet). Measured shares of the peak go to bench/RECORDS.md.
#include "kernels/norm_conv/norm_conv.cuda.h"

#include "kernels/norm/norm.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned channels_per_block = 128;
constexpr unsigned operand_rows_at_once = 4;  // rows whose loads are in flight
constexpr unsigned operand_resident = 3;      // blocks per multiprocessor

template <class T>
struct Finalizing {
  const float *sum, *squares, *gamma, *beta;
  float *running_mean, *running_var, *mean, *inv_std;
  T *scale, *bias;
  double rows, epsilon, momentum;
};

// In double: the numbers are few, and the variance is the difference of two nearly equal ones.
template <class T>
__global__ void __launch_bounds__(channels_per_block)
    norm_finalize_channels(Finalizing<T> at, unsigned channels) {
  const unsigned c = blockIdx.x * channels_per_block + threadIdx.x;
  if (c >= channels) return;
  const double mean = at.sum[c] / at.rows;
  double variance = at.squares[c] / at.rows - mean * mean;
  if (variance < 0) variance = 0;  // a NaN stays
  const double old_mean = at.running_mean[c], old_var = at.running_var[c];
  at.running_mean[c] = static_cast<float>(old_mean + at.momentum * (mean - old_mean));
  at.running_var[c] =
      static_cast<float>(old_var + at.momentum * (variance * at.rows / (at.rows - 1) - old_var));
  const double inv_std = 1 / sqrt(variance + at.epsilon), scale = at.gamma[c] * inv_std;
  at.mean[c] = static_cast<float>(mean);
  at.inv_std[c] = static_cast<float>(inv_std);
  at.scale[c] = narrow<T>(static_cast<float>(scale));
  at.bias[c] = narrow<T>(static_cast<float>(at.beta[c] - mean * scale));
}

template <class T>
struct Applying {
  const T *g, *x;
  const float *d_gamma, *d_beta, *by_g, *by_x, *constant;
  T *d_x, *narrow_d_gamma, *narrow_d_beta;
};

// d_x = by_g g + by_x x + constant, from the end, as norm.cuh says. The first row of blocks also
// converts the parameters' gradients to T.
template <class T>
__global__ void __launch_bounds__(norm_threads, operand_resident)
    norm_grad_apply_pass(Applying<T> at, NormRows matrix) {
  constexpr int width = vector_width<T>;
  float by_g[width] = {}, by_x[width] = {}, constant[width] = {};
  if (matrix.column() < matrix.columns) {
    const std::size_t channel = std::size_t{matrix.column()} * width;
    load_quads(at.by_g + channel, by_g);
    load_quads(at.by_x + channel, by_x);
    load_quads(at.constant + channel, constant);
    if (blockIdx.x == 0 && threadIdx.y == 0) {
      float wide[width];
      load_quads(at.d_gamma + channel, wide);
      store(at.narrow_d_gamma + channel, wide);
      load_quads(at.d_beta + channel, wide);
      store(at.narrow_d_beta + channel, wide);
    }
  }
  Packed<T, width> gs[operand_rows_at_once], xs[operand_rows_at_once];
  walk<width, operand_rows_at_once, true>(
      matrix,
      [&](unsigned j, std::size_t place) {
        gs[j] = read<width>(at.g + place);
        xs[j] = read<width>(at.x + place);
      },
      [&](unsigned j, std::size_t place) {
        float g[width], x[width];
        unpack(gs[j], g);
        unpack(xs[j], x);
#pragma unroll
        for (int i = 0; i < width; ++i)
          g[i] = fmaf(by_g[i], g[i], fmaf(by_x[i], x[i], constant[i]));
        store(at.d_x + place, g);
      });
}

}  // namespace

void norm_finalize(const NormShape& shape, const NormFinalizeBuffers& b, DType dtype,
                   cudaStream_t stream) {
  dispatch("norm_finalize", dtype, [&]<class T>() {
    const unsigned channels = index32("norm_finalize", "channels", shape.channels);
    if (channels == 0) return;
    launch("norm_finalize", norm_finalize_channels<T>,
           {.grid = dim3(blocks_for(channels, channels_per_block)),
            .block = dim3(channels_per_block),
            .stream = stream},
           Finalizing<T>{b.sum, b.squares, b.gamma, b.beta, b.running_mean, b.running_var, b.mean,
                         b.inv_std, static_cast<T*>(b.scale), static_cast<T*>(b.bias),
                         static_cast<double>(shape.rows), static_cast<double>(shape.epsilon),
                         shape.momentum},
           channels);
  });
}

void norm_grad_apply(const NormShape& shape, const NormGradApplyBuffers& b, DType dtype,
                     cudaStream_t stream) {
  dispatch("norm_grad_apply", dtype, [&]<class T>() {
    if (shape.rows == 0 || shape.channels == 0) return;
    const NormRows matrix = norm_rows<T>("norm_grad_apply", shape);
    launch("norm_grad_apply", norm_grad_apply_pass<T>,
           norm_launch(matrix, norm_pass_blocks(matrix, operand_rows_at_once, operand_resident),
                       stream),
           Applying<T>{static_cast<const T*>(b.g), static_cast<const T*>(b.x), b.d_gamma, b.d_beta,
                       b.by_g, b.by_x, b.constant, static_cast<T*>(b.d_x),
                       static_cast<T*>(b.narrow_d_gamma), static_cast<T*>(b.narrow_d_beta)},
           matrix);
  });
}

}  // namespace warpstep::cuda

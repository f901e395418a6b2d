// Linear layers of at most 16 outputs, forward and backward, one launch each. All sums are f32 in
// a fixed order, on ordinary units: 5 MFLOP for 128x2048 to 10 are too few to need tensor cores.
// What bounds these kernels is a launch and one trip to the L2 cache, which is why a thread has
// all that it reads in flight at once: 1.1 MB for that layer's data gradient in f16, 0.6 MB for the
// weight gradient, and 5.8 MB for the forward kernel, whose blocks each read all weights. On an
// H200 they take 2.6, 4.8 and 2.3 us.
#include <bit>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/linear/few.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr int most_outputs = 16;

struct FewShape {
  unsigned rows, inputs, pitch;  // pitch: outputs as stored
};

// As many sums as a warp shares among its lanes.
template <int count>
constexpr int padded_outputs = static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)));

// The sums of `count` values, a power of two, over the lanes of a warp that have the same number
// modulo `apart`: at each distance a lane keeps half of the values and gives the others away, 16
// shuffles for 16 values in place of 80. A lane gets the sum of value lane / (32 / count).
template <int count, int apart>
__device__ inline float spread_sum(float (&value)[count]) {
  const unsigned lane = threadIdx.x % warp_lanes;
  int kept = count;
#pragma unroll
  for (int distance = warp_lanes / 2; distance >= apart; distance /= 2) {
    if (kept == 1) {
      value[0] += __shfl_xor_sync(all_lanes, value[0], distance);
      continue;
    }
    kept /= 2;
    const bool upper = (lane & static_cast<unsigned>(distance)) != 0;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      if (i >= kept) break;
      const float given = upper ? value[i] : value[i + kept];
      value[i] = (upper ? value[i + kept] : value[i]) + __shfl_xor_sync(all_lanes, given, distance);
    }
  }
  return value[0];
}

// The value whose sum the lane has, and whether no lane before it has the same one.
template <int count>
struct Spread {
  static constexpr unsigned lanes = static_cast<unsigned>(warp_lanes / count);
  unsigned value = threadIdx.x % warp_lanes / lanes, rest = threadIdx.x % lanes;
};

constexpr unsigned forward_threads = 256, forward_warps = forward_threads / warp_lanes;
constexpr int more_rows = 4;                    // that a block computes where there are many
constexpr std::int64_t most_single_rows = 256;  // with a block each

// A block computes `rows` rows at `outs` outputs, each thread a share of the inputs.
template <class T, int outs, int rows>
__global__ void __launch_bounds__(forward_threads, rows == 1 ? 2 : 1)
    few_forward_kernel(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
                       T* __restrict__ y, FewShape of, bool relu) {
  await_previous();
  constexpr int width = vector_width<T>, values = padded_outputs<outs>;
  __shared__ float of_warps[forward_warps][rows][values];
  const unsigned first = blockIdx.x * rows, last = of.rows - 1;
  // What the thread writes in the end: its bias is on the way from the start.
  const unsigned row = rows == 1 ? 0 : threadIdx.x / of.pitch;
  const unsigned output = threadIdx.x - row * of.pitch;
  const bool writes = threadIdx.x < rows * of.pitch && first + row <= last;
  const float added = writes && bias != nullptr ? widen(bias[output]) : 0;

  float sum[rows][values] = {};
  for (unsigned i = width * threadIdx.x; i < of.inputs; i += width * blockDim.x) {
    float a[rows][width];
    Packed<T, width> weights[outs];
#pragma unroll
    for (unsigned o = 0; o < outs; ++o) weights[o] = read<width>(w + o * of.inputs + i);
#pragma unroll
    for (unsigned r = 0; r < rows; ++r)
      load(x + std::size_t{first + r < last ? first + r : last} * of.inputs + i, a[r]);
#pragma unroll
    for (int o = 0; o < outs; ++o) {
      float b[width];
      unpack(weights[o], b);
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int k = 0; k < width; ++k) sum[r][o] += a[r][k] * b[k];
    }
  }

  const Spread<values> at;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float total = spread_sum<values, 1>(sum[r]);
    if (at.rest == 0) of_warps[threadIdx.x / warp_lanes][r][at.value] = total;
  }
  __syncthreads();
  if (!writes) return;
  float total = 0;  // 0 for the padding of the outputs
  if (output < outs) {
    for (unsigned warp = 0; warp < blockDim.x / warp_lanes; ++warp)
      total += of_warps[warp][row][output];
    total += added;
  }
  if (relu) total = rectified(total);
  y[std::size_t{first + row} * of.pitch + output] = narrow<T>(total);
}

constexpr unsigned grad_threads = 256, grad_warps = grad_threads / warp_lanes;
constexpr unsigned block_vectors = 2;  // of d_x's columns: together 32 bytes, what a cache fetches

// A block computes two column vectors; without `before` of some rows, with it of all rows, so that
// it has the whole sum of its columns. A thread computes a vector of every
// `blockDim.x / block_vectors`-th row.
template <class T, int outs>
__global__ void __launch_bounds__(grad_threads, 1)
    few_data_grad_kernel(const T* __restrict__ d_y, const T* __restrict__ w,
                         const T* __restrict__ before, T* __restrict__ d_x, T* __restrict__ d_bias,
                         FewShape of) {
  await_previous();
  constexpr int width = vector_width<T>;
  __shared__ float of_warps[grad_warps][block_vectors][width];
  const unsigned own = threadIdx.x % block_vectors;
  const unsigned column = (blockIdx.x * block_vectors + own) * width;
  const unsigned rows = blockDim.x / block_vectors;
  const bool inside = column < of.inputs;
  const unsigned step = gridDim.y * rows;
  unsigned r = blockIdx.y * rows + threadIdx.x / block_vectors;

  // What a row needs is read one row ahead, that of the first row beside the weights.
  Packed<T, width> relu{};
  Packed<T, 4> gradients[outs / 4];
  const auto fetch = [&](unsigned row) {
    if (!inside || row >= of.rows) return;
    if (before != nullptr) relu = read<width>(before + std::size_t{row} * of.inputs + column);
#pragma unroll
    for (int o = 0; o < outs; o += 4)
      gradients[o / 4] = read<4>(d_y + std::size_t{row} * of.pitch + o);
  };
  fetch(r);
  Packed<T, width> weights[outs];
#pragma unroll
  for (unsigned o = 0; o < outs; ++o)
    if (inside) weights[o] = read<width>(w + o * of.inputs + column);

  float sum[width] = {};
  for (; inside && r < of.rows; r += step) {
    float d[outs], of_relu[width], product[width] = {};
    unpack(relu, of_relu);
#pragma unroll
    for (int o = 0; o < outs; o += 4) {
      float quad[4];
      unpack(gradients[o / 4], quad);
#pragma unroll
      for (int n = 0; n < 4; ++n) d[o + n] = quad[n];
    }
    fetch(r + step);
#pragma unroll
    for (int o = 0; o < outs; ++o) {
      float b[width];
      unpack(weights[o], b);
#pragma unroll
      for (int k = 0; k < width; ++k) product[k] += d[o] * b[k];
    }
    if (before != nullptr)
#pragma unroll
      for (int k = 0; k < width; ++k) {
        if (of_relu[k] <= 0) product[k] = 0;
        sum[k] += product[k];
      }
    store(d_x + std::size_t{r} * of.inputs + column, product);
  }
  if (before == nullptr) return;

  const Spread<width> at;
  const float total = spread_sum<width, static_cast<int>(block_vectors)>(sum);
  if (at.rest < block_vectors) of_warps[threadIdx.x / warp_lanes][own][at.value] = total;
  __syncthreads();
  if (threadIdx.x >= block_vectors * width) return;
  const unsigned to = blockIdx.x * block_vectors * width + threadIdx.x;
  if (to >= of.inputs) return;
  float all = 0;
  for (unsigned warp = 0; warp < blockDim.x / warp_lanes; ++warp)
    all += of_warps[warp][threadIdx.x / width][threadIdx.x % width];
  d_bias[to] = narrow<T>(all);
}

constexpr unsigned weight_warps = 16, weight_threads = weight_warps * warp_lanes;
constexpr unsigned weight_columns = 16;  // of a block
constexpr unsigned batch = 8;            // rows of a warp in flight at once
constexpr unsigned lane_columns = 2, lane_outputs = 4;
constexpr unsigned tile_pitch = weight_columns + 4;  // spreads a warp's stores over the banks

// A block computes 16 columns of d_w at all outputs. Each warp has them all, a lane two columns at
// four outputs, and adds every 16th batch of rows; then the block adds its warps in order.
template <class T>
__global__ void __launch_bounds__(weight_threads, 1)
    few_weight_grad_kernel(const T* __restrict__ x, const T* __restrict__ d_y, T* __restrict__ d_w,
                           T* __restrict__ d_bias, FewShape of) {
  await_previous();
  alignas(16) __shared__ float of_warps[weight_warps][most_outputs][tile_pitch];
  __shared__ float biases[weight_warps][most_outputs];
  constexpr unsigned lanes = weight_columns / lane_columns;  // side by side
  const unsigned lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const unsigned warps = blockDim.x / warp_lanes;
  const unsigned own = lane % lanes * lane_columns, output = lane / lanes * lane_outputs;
  const unsigned column = blockIdx.x * weight_columns + own;
  const bool inside = column < of.inputs && output < of.pitch;
  const bool adds_bias = d_bias != nullptr && blockIdx.x == 0;  // every block reads all of d_y

  float sum[lane_outputs][lane_columns] = {}, bias[lane_outputs] = {};
  for (unsigned first = warp * batch; first < of.rows; first += warps * batch) {
    Packed<T, lane_columns> a[batch];  // 0 after the last row
    Packed<T, lane_outputs> b[batch];
#pragma unroll
    for (unsigned j = 0; j < batch; ++j) {
      if (!inside || first + j >= of.rows) continue;
      a[j] = read<lane_columns>(x + std::size_t{first + j} * of.inputs + column);
      b[j] = read<lane_outputs>(d_y + std::size_t{first + j} * of.pitch + output);
    }
#pragma unroll
    for (unsigned j = 0; j < batch; ++j) {
      float of_x[lane_columns], of_y[lane_outputs];
      unpack(a[j], of_x);
      unpack(b[j], of_y);
#pragma unroll
      for (unsigned o = 0; o < lane_outputs; ++o) {
#pragma unroll
        for (unsigned c = 0; c < lane_columns; ++c) sum[o][c] += of_y[o] * of_x[c];
        if (adds_bias) bias[o] += of_y[o];
      }
    }
  }

#pragma unroll
  for (unsigned o = 0; o < lane_outputs; ++o) {
    store(&of_warps[warp][output + o][own], sum[o]);
    if (adds_bias && own == 0) biases[warp][output + o] = bias[o];
  }
  __syncthreads();
  for (unsigned e = threadIdx.x; e < of.pitch * weight_columns; e += blockDim.x) {
    const unsigned o = e / weight_columns, c = e % weight_columns;
    if (blockIdx.x * weight_columns + c >= of.inputs) continue;
    float total = 0;
    for (unsigned from = 0; from < warps; ++from) total += of_warps[from][o][c];
    d_w[std::size_t{o} * of.inputs + blockIdx.x * weight_columns + c] = narrow<T>(total);
  }
  if (!adds_bias || threadIdx.x >= of.pitch) return;
  float total = 0;
  for (unsigned from = 0; from < warps; ++from) total += biases[from][threadIdx.x];
  d_bias[threadIdx.x] = narrow<T>(total);
}

FewShape few_shape(const char* kernel, const FewOutputs& layer, int width) {
  if (layer.outputs > most_outputs) refuse_size(kernel, "outputs", layer.outputs, most_outputs, 1);
  if (layer.outputs > layer.pitch || layer.pitch > most_outputs || layer.pitch % width != 0)
    refuse_size(kernel, "stored outputs", layer.pitch, most_outputs, width);
  return {.rows = index32(kernel, "rows", layer.rows),
          .inputs = index32(kernel, "inputs", layer.inputs, width) * static_cast<unsigned>(width),
          .pitch = static_cast<unsigned>(layer.pitch)};
}

// run.operator()<T, outs>() with the element type and the outputs that are computed: whole fours.
template <class Run>
void dispatch_few(const char* kernel, const FewOutputs& layer, DType dtype, Run run) {
  dispatch(kernel, dtype, [&]<class T>() {
    if (layer.outputs <= 4) return run.template operator()<T, 4>();
    if (layer.outputs <= 8) return run.template operator()<T, 8>();
    if (layer.outputs <= 12) return run.template operator()<T, 12>();
    run.template operator()<T, 16>();
  });
}

unsigned whole_warps(unsigned count, unsigned least, unsigned most) {
  const unsigned rounded = (count + warp_lanes - 1) / warp_lanes * warp_lanes;
  return rounded < least ? least : rounded > most ? most : rounded;
}

template <class T, int outs, int rows>
void launch_few_forward(const FewShape& of, const T* x, const T* w, const T* bias, bool relu, T* y,
                        cudaStream_t stream) {
  // A thread for each element of the block's y, at least.
  const unsigned block =
      whole_warps(of.inputs / vector_width<T>, rows * most_outputs, forward_threads);
  launch_next("few_forward", few_forward_kernel<T, outs, rows>,
              {.grid = blocks_for(of.rows, rows), .block = block, .stream = stream}, x, w, bias, y,
              of, relu);
}

}  // namespace

// On an H200 the forward kernel takes 2.3 us and the data gradient 2.6 for 128x2048 to 10 in f16,
// where cublasLt took 5, and 12 with the two kernels of an epilogue. The limits are estimates: at
// the most work allowed here, 1024x2048 to 16, ordinary units take 3 us for 67 MFLOP with the
// conversions, about what a tuned product takes. More rows would add to the chain of one block,
// more inputs to that of a block of the forward kernel.
bool has_few_outputs(const FewOutputs& layer) {
  constexpr std::int64_t most_rows = 1024, most_inputs = 8192, most_products = 1024 * 2048 * 16;
  return layer.rows > 0 && layer.rows <= most_rows && layer.inputs > 0 &&
         layer.inputs <= most_inputs && layer.pitch <= most_outputs &&
         layer.rows * layer.inputs * layer.outputs <= most_products;
}

void few_forward(const FewOutputs& layer, const void* x, const void* w, const void* bias, bool relu,
                 void* y, DType dtype, cudaStream_t stream) {
  dispatch_few("few_forward", layer, dtype, [&]<class T, int outs>() {
    const FewShape of = few_shape("few_forward", layer, vector_width<T>);
    if (of.rows == 0) return;
    const auto run = layer.rows <= most_single_rows ? launch_few_forward<T, outs, 1>
                                                    : launch_few_forward<T, outs, more_rows>;
    run(of, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), relu,
        static_cast<T*>(y), stream);
  });
}

void few_data_grad(const FewOutputs& layer, const void* d_y, const void* w, const void* before,
                   void* d_x, void* d_bias, DType dtype, cudaStream_t stream) {
  dispatch_few("few_data_grad", layer, dtype, [&]<class T, int outs>() {
    const FewShape of = few_shape("few_data_grad", layer, vector_width<T>);
    if (of.rows == 0) return;
    const unsigned block = whole_warps(of.rows * block_vectors, warp_lanes, grad_threads);
    const unsigned columns = blocks_for(of.inputs / vector_width<T>, block_vectors);
    const unsigned parts = before != nullptr ? 1 : blocks_for(of.rows, block / block_vectors);
    launch_next("few_data_grad", few_data_grad_kernel<T, outs>,
                {.grid = dim3(columns, parts), .block = block, .stream = stream},
                static_cast<const T*>(d_y), static_cast<const T*>(w), static_cast<const T*>(before),
                static_cast<T*>(d_x), static_cast<T*>(d_bias), of);
  });
}

void few_weight_grad(const FewOutputs& layer, const void* x, const void* d_y, void* d_w,
                     void* d_bias, DType dtype, cudaStream_t stream) {
  dispatch("few_weight_grad", dtype, [&]<class T>() {
    const FewShape of = few_shape("few_weight_grad", layer, vector_width<T>);
    const unsigned warps = blocks_for(of.rows, batch);
    launch_next("few_weight_grad", few_weight_grad_kernel<T>,
                {.grid = blocks_for(of.inputs, weight_columns),
                 .block = whole_warps(warps * warp_lanes, warp_lanes, weight_threads),
                 .stream = stream},
                static_cast<const T*>(x), static_cast<const T*>(d_y), static_cast<T*>(d_w),
                static_cast<T*>(d_bias), of);
  });
}

}  // namespace warpstep::cuda

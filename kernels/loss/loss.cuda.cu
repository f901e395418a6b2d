// The classification losses op by op, for unfused steps; softmax_xent.cuda.cu has all in one pass.
// One warp per row, with neighbouring lanes at neighbouring elements, so that rows of any length
// are read in whole cache lines. Bound by memory where there are many rows.

#include "kernels/loss/loss.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/loss/targets.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned loss_threads = 256;
constexpr unsigned rows_per_block = loss_threads / warp_lanes;
constexpr unsigned most_loss_blocks = 8 * 132;  // 8 per multiprocessor of an H200

struct Rows {
  unsigned rows;
  int classes;
  std::int64_t pitch, log_pitch;
};

// f(row) for the rows of the calling warp.
template <class F>
__device__ inline void each_row(const Rows& shape, F f) {
  const unsigned first = blockIdx.x * rows_per_block + threadIdx.x / warp_lanes;
  for (unsigned row = first; row < shape.rows; row += gridDim.x * rows_per_block) f(row);
}

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x % warp_lanes);
}

template <class T>
__global__ void __launch_bounds__(loss_threads)
    log_softmax_kernel(Rows shape, const T* __restrict__ logits, float* __restrict__ y) {
  await_previous();
  each_row(shape, [&](unsigned row) {
    const T* x = logits + row * shape.pitch;
    float largest = -INFINITY, sum = 0;
    for (int k = lane(); k < shape.classes; k += warp_lanes) largest = fmaxf(largest, widen(x[k]));
    largest = group_reduce<warp_lanes>(largest, Max{});
    for (int k = lane(); k < shape.classes; k += warp_lanes) sum += expf(widen(x[k]) - largest);
    const float log_sum = logf(group_reduce<warp_lanes>(sum, Sum{}));
    for (int k = lane(); k < shape.log_pitch; k += warp_lanes)
      y[row * shape.log_pitch + k] = k < shape.classes ? widen(x[k]) - largest - log_sum : 0;
  });
}

template <class T>
__global__ void __launch_bounds__(loss_threads)
    log_softmax_grad_kernel(Rows shape, const float* d_y,  // may be d_logits
                            const float* __restrict__ y, T* d_logits) {
  await_previous();
  each_row(shape, [&](unsigned row) {
    const float *d = d_y + row * shape.log_pitch, *log_p = y + row * shape.log_pitch;
    float sum = 0;
    for (int k = lane(); k < shape.classes; k += warp_lanes) sum += d[k];
    sum = group_reduce<warp_lanes>(sum, Sum{});
    for (int k = lane(); k < shape.pitch; k += warp_lanes)
      d_logits[row * shape.pitch + k] =
          narrow<T>(k < shape.classes ? d[k] - expf(log_p[k]) * sum : 0);
  });
}

// One block: without smoothing a row is one scattered load, and a batch has at most a few thousand
// rows.
template <class T>
__global__ void __launch_bounds__(loss_threads)
    nll_kernel(Rows shape, const T* __restrict__ x, const std::int32_t* __restrict__ labels,
               const RowPlan* __restrict__ rows, Criterion criterion, float* loss) {
  await_previous();
  float sum = 0;
  for (unsigned row = threadIdx.x; row < shape.rows; row += blockDim.x) {
    const Targets of = targets_of(labels, rows, row);
    const T* own = x + row * shape.log_pitch;
    if (of.label >= 0) sum -= of.weight * weight_of(criterion, of.label) * widen(own[of.label]);
    if (of.pair >= 0) sum -= of.rest * weight_of(criterion, of.pair) * widen(own[of.pair]);
  }
  if (criterion.smoothing != 0) {
    float all = 0;
    each_row(shape, [&](unsigned row) {
      if (labels[row] < 0) return;
      for (int k = lane(); k < shape.classes; k += warp_lanes)
        all -= weight_of(criterion, k) * widen(x[row * shape.log_pitch + k]);
    });
    sum = (1 - criterion.smoothing) * sum +
          criterion.smoothing / static_cast<float>(shape.classes) * all;
  }
  sum = block_reduce(sum, 0.0F, Sum{});
  const float weights = label_weights(criterion, labels, rows, shape.rows);
  if (threadIdx.x == 0) *loss = weights > 0 ? sum / weights : sum;
}

template <class T>
__global__ void __launch_bounds__(loss_threads)
    nll_grad_kernel(Rows shape, const std::int32_t* __restrict__ labels,
                    const RowPlan* __restrict__ rows, Criterion criterion,
                    const StepState* __restrict__ state, T* __restrict__ d_x) {
  await_previous();
  const float weights = label_weights(criterion, labels, rows, shape.rows);
  const float scale = state != nullptr ? state->loss_scale : 1;
  const float value = weights > 0 ? -scale / weights : 0;
  each_row(shape, [&](unsigned row) {
    const Targets of = targets_of(labels, rows, row);
    for (int k = lane(); k < shape.log_pitch; k += warp_lanes) {
      const bool counts = of.label >= 0 && k < shape.classes;
      const float d = counts ? value * wanted(criterion, of, k, shape.classes) : 0;
      d_x[row * shape.log_pitch + k] = narrow<T>(d);
    }
  });
}

__global__ void __launch_bounds__(1) loss_grad_kernel(const StepState* state, float* d_loss) {
  await_previous();
  *d_loss = state != nullptr ? state->loss_scale : 1;
}

__global__ void __launch_bounds__(1) zero_kernel(std::int32_t* word) {
  await_previous();
  *word = 0;
}

// Counts integers, so that the sum by atomics is the same in any order.
template <class T>
__global__ void __launch_bounds__(loss_threads)
    top1_kernel(Rows shape, const T* __restrict__ logits, const std::int32_t* __restrict__ labels,
                std::int32_t* correct) {
  await_previous();
  int hits = 0;
  each_row(shape, [&](unsigned row) {
    const T* x = logits + row * shape.pitch;
    const int label = labels[row];
    if (label < 0) return;
    const float own = widen(x[label]);
    // A NaN compares as neither larger nor smaller than any logit: it wins only at class 0.
    bool beaten = label > 0 && (std::isnan(own) || std::isnan(widen(x[0])));
    for (int k = lane(); k < shape.classes; k += warp_lanes) {
      const float other = widen(x[k]);
      if (k < label ? other >= own : other > own) beaten = true;
    }
    if (!__any_sync(all_lanes, beaten) && lane() == 0) ++hits;
  });
  hits = block_reduce(hits, 0, Sum{});
  if (threadIdx.x == 0 && hits != 0) atomicAdd(correct, hits);
}

Rows checked_rows(const char* name, const RowsShape& shape) {
  return {.rows = index32(name, "rows", shape.rows),
          .classes = static_cast<int>(index32(name, "classes", shape.classes)),
          .pitch = index32(name, "logits per row", shape.pitch),
          .log_pitch = index32(name, "log-probabilities per row", shape.log_pitch)};
}

LaunchShape over(const Rows& rows, cudaStream_t stream) {
  const unsigned blocks = blocks_for(rows.rows, rows_per_block);
  return {.grid = blocks < most_loss_blocks ? blocks : most_loss_blocks,
          .block = loss_threads,
          .stream = stream};
}

}  // namespace

void log_softmax(const RowsShape& shape, const void* logits, float* log_probabilities, DType dtype,
                 cudaStream_t stream) {
  dispatch("log_softmax", dtype, [&]<class T>() {
    const Rows rows = checked_rows("log_softmax", shape);
    if (rows.rows == 0) return;
    launch_next("log_softmax", log_softmax_kernel<T>, over(rows, stream), rows,
                static_cast<const T*>(logits), log_probabilities);
  });
}

void log_softmax_grad(const RowsShape& shape, const float* d_y, const float* log_probabilities,
                      void* d_logits, DType dtype, cudaStream_t stream) {
  dispatch("log_softmax_grad", dtype, [&]<class T>() {
    const Rows rows = checked_rows("log_softmax_grad", shape);
    if (rows.rows == 0) return;
    launch_next("log_softmax_grad", log_softmax_grad_kernel<T>, over(rows, stream), rows, d_y,
                log_probabilities, static_cast<T*>(d_logits));
  });
}

void nll(const RowsShape& shape, const void* x, const std::int32_t* labels, const RowPlan* rows,
         const Criterion& criterion, float* loss, DType dtype, cudaStream_t stream) {
  dispatch("nll", dtype, [&]<class T>() {
    launch_next("nll", nll_kernel<T>, {.grid = 1, .block = loss_threads, .stream = stream},
                checked_rows("nll", shape), static_cast<const T*>(x), labels, rows, criterion,
                loss);
  });
}

void nll_grad(const RowsShape& shape, const std::int32_t* labels, const RowPlan* rows,
              const Criterion& criterion, const StepState* state, void* d_x, DType dtype,
              cudaStream_t stream) {
  const Rows extent = checked_rows("nll_grad", shape);
  if (extent.rows == 0) return;
  dispatch("nll_grad", dtype, [&]<class T>() {
    launch_next("nll_grad", nll_grad_kernel<T>, over(extent, stream), extent, labels, rows,
                criterion, state, static_cast<T*>(d_x));
  });
}

void loss_grad(const StepState* state, float* d_loss, cudaStream_t stream) {
  launch_next("loss_grad", loss_grad_kernel, {.grid = 1, .block = 1, .stream = stream}, state,
              d_loss);
}

void top1(const RowsShape& shape, const void* logits, const std::int32_t* labels,
          std::int32_t* correct, DType dtype, cudaStream_t stream) {
  dispatch("top1", dtype, [&]<class T>() {
    const Rows rows = checked_rows("top1", shape);
    launch_next("top1", zero_kernel, {.grid = 1, .block = 1, .stream = stream}, correct);
    if (rows.rows == 0) return;
    launch_next("top1", top1_kernel<T>, over(rows, stream), rows, static_cast<const T*>(logits),
                labels, correct);
  });
}

}  // namespace warpstep::cuda

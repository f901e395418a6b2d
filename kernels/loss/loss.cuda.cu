// The losses op by op, as an unfused step has them: a warp a row, lanes side by side in it, so that
// a row of any length is read in whole lines; bound by memory where rows are many. The fused pass
// (softmax_xent) is what steps use.

#include "kernels/loss/loss.cuda.h"

#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/loss/logit_row.cuh"
#include "kernels/loss/targets.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned rows_a_block = threads / warp_lanes;
constexpr unsigned most_blocks = 8 * 132;

struct Rows {
  unsigned rows;
  int classes;
  std::int64_t pitch, log_pitch;
};

// f(row) for the rows of the calling warp.
template <class F>
__device__ inline void each_row(const Rows& shape, F f) {
  const unsigned first = blockIdx.x * rows_a_block + threadIdx.x / warp_lanes;
  for (unsigned row = first; row < shape.rows; row += gridDim.x * rows_a_block) f(row);
}

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x % warp_lanes);
}

template <class T>
__global__ void __launch_bounds__(threads)
    log_softmax_kernel(Rows shape, const T* __restrict__ logits, float* __restrict__ y) {
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
__global__ void __launch_bounds__(threads)
    log_softmax_grad_kernel(Rows shape, const float* __restrict__ d_y, const float* __restrict__ y,
                            T* __restrict__ d_logits) {
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

// One block: without smoothing a row is one scattered load, and a batch has a few thousand.
template <class T>
__global__ void __launch_bounds__(threads)
    nll_kernel(Rows shape, const T* __restrict__ x, const std::int32_t* __restrict__ labels,
               const RowPlan* __restrict__ rows, Criterion criterion, float* loss) {
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
  if (threadIdx.x == 0) *loss = weights > 0 ? sum / weights : 0;
}

template <class T>
__global__ void __launch_bounds__(threads)
    nll_grad_kernel(Rows shape, const std::int32_t* __restrict__ labels,
                    const RowPlan* __restrict__ rows, Criterion criterion,
                    const StepState* __restrict__ state, T* __restrict__ d_x) {
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
  *d_loss = state != nullptr ? state->loss_scale : 1;
}

__global__ void __launch_bounds__(1) zero_kernel(std::int32_t* word) {
  *word = 0;
}

// The rows that count are integers: their sum by atomics is the same in any order.
template <class T>
__global__ void __launch_bounds__(threads)
    top1_kernel(Rows shape, const T* __restrict__ logits, const std::int32_t* __restrict__ labels,
                std::int32_t* correct) {
  int hits = 0;
  each_row(shape, [&](unsigned row) {
    const T* x = logits + row * shape.pitch;
    const int label = labels[row];
    if (label < 0) return;
    const float own = widen(x[label]);
    // A NaN is never larger than another logit, nor smaller: on top in the first place alone.
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

Rows checked(const char* name, const RowsShape& shape) {
  return {.rows = index32(name, "rows", shape.rows),
          .classes = static_cast<int>(index32(name, "classes", shape.classes)),
          .pitch = index32(name, "logits a row", shape.pitch),
          .log_pitch = index32(name, "log-probabilities a row", shape.log_pitch)};
}

LaunchShape over(const Rows& rows, cudaStream_t stream) {
  const unsigned blocks = blocks_for(rows.rows, rows_a_block);
  return {.grid = blocks < most_blocks ? blocks : most_blocks, .block = threads, .stream = stream};
}

}  // namespace

void log_softmax(const RowsShape& shape, const void* logits, float* log_probabilities, DType dtype,
                 cudaStream_t stream) {
  dispatch("log_softmax", dtype, [&]<class T>() {
    const Rows rows = checked("log_softmax", shape);
    if (rows.rows == 0) return;
    launch("log_softmax", log_softmax_kernel<T>, over(rows, stream), rows,
           static_cast<const T*>(logits), log_probabilities);
  });
}

void log_softmax_grad(const RowsShape& shape, const float* d_y, const float* log_probabilities,
                      void* d_logits, DType dtype, cudaStream_t stream) {
  dispatch("log_softmax_grad", dtype, [&]<class T>() {
    const Rows rows = checked("log_softmax_grad", shape);
    if (rows.rows == 0) return;
    launch("log_softmax_grad", log_softmax_grad_kernel<T>, over(rows, stream), rows, d_y,
           log_probabilities, static_cast<T*>(d_logits));
  });
}

void nll(const RowsShape& shape, const void* x, const std::int32_t* labels, const RowPlan* rows,
         const Criterion& criterion, float* loss, DType dtype, cudaStream_t stream) {
  dispatch("nll", dtype, [&]<class T>() {
    launch("nll", nll_kernel<T>, {.grid = 1, .block = threads, .stream = stream},
           checked("nll", shape), static_cast<const T*>(x), labels, rows, criterion, loss);
  });
}

void nll_grad(const RowsShape& shape, const std::int32_t* labels, const RowPlan* rows,
              const Criterion& criterion, const StepState* state, void* d_x, DType dtype,
              cudaStream_t stream) {
  const Rows extent = checked("nll_grad", shape);
  if (extent.rows == 0) return;
  dispatch("nll_grad", dtype, [&]<class T>() {
    launch("nll_grad", nll_grad_kernel<T>, over(extent, stream), extent, labels, rows, criterion,
           state, static_cast<T*>(d_x));
  });
}

void loss_grad(const StepState* state, float* d_loss, cudaStream_t stream) {
  launch("loss_grad", loss_grad_kernel, {.grid = 1, .block = 1, .stream = stream}, state, d_loss);
}

void top1(const RowsShape& shape, const void* logits, const std::int32_t* labels,
          std::int32_t* correct, DType dtype, cudaStream_t stream) {
  dispatch("top1", dtype, [&]<class T>() {
    const Rows rows = checked("top1", shape);
    launch("top1", zero_kernel, {.grid = 1, .block = 1, .stream = stream}, correct);
    if (rows.rows == 0) return;
    launch("top1", top1_kernel<T>, over(rows, stream), rows, static_cast<const T*>(logits), labels,
           correct);
  });
}

// Softmax, cross-entropy, top-1 and the gradient of the mean loss in one pass over the logits: each
// is read once from memory and its gradient written once, 4 bytes a logit of 16 bits. 4096x1000 in
// f16 are 16 MB, 4 us; 128x10 is one block, bound by its chain of loads and barriers.
//
// A row belongs to a group of lanes, as many as it has vectors of 16 bytes, or to a block where it
// has more than 64. A lane's first vector stays in registers, which holds rows of up to 256
// elements of 16 bits in a warp and 2048 in a block; what is beyond is read again, from L1.
//
// The gradient needs to know at once how many rows are not padding: every block reads all labels, 4
// bytes a row, from the caches. Hence not more blocks than fill the device: 4 a multiprocessor.

namespace {

constexpr unsigned most_xent_blocks = 4 * 132;
constexpr int whole_block = 0;  // in place of a group of lanes

struct XentRows {
  unsigned rows, vectors;  // a row
  int classes;
};

// Sums over the rows of a block, and then of the grid.
struct alignas(8) Score {
  float loss;
  int correct;
};

template <int group, class T, class Op>
__device__ inline T reduce(T value, T identity, Op op) {
  if constexpr (group == whole_block)
    return block_reduce(value, identity, op);
  else
    return group_reduce<group>(value, op);
}

__device__ inline Score block_sum(const Score& own) {
  return {block_reduce(own.loss, 0.0F, Sum{}), block_reduce(own.correct, 0, Sum{})};
}

// log sum exp x is largest + log(sum); `own` is the label's logit.
struct Normalizer {
  float largest, sum, own;
  bool top;  // the label's logit is the first of the largest ones
};

template <int group, class T>
__device__ inline Normalizer normalizer(const LogitRow<T>& row, const T* logits, int label) {
  constexpr int width = LogitRow<T>::width;
  const float own = label >= 0 ? widen(logits[label]) : 0;
  float largest = -INFINITY;
  int beaten = 0;
  row.each([&](unsigned k, const float(&x)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      largest = fmaxf(largest, x[i]);
      const bool before = static_cast<int>(k) + i < label;
      if (before ? x[i] >= own : x[i] > own) beaten = 1;
    }
  });
  largest = reduce<group>(largest, -INFINITY, Max{});
  beaten = reduce<group>(beaten, 0, Max{});
  float sum = 0;
  row.each([&](unsigned, const float(&x)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum += expf(x[i] - largest);
  });
  sum = reduce<group>(sum, 0.0F, Sum{});
  // A NaN is never larger than another logit, nor smaller: it is on top in the first place alone.
  const bool ordered = label <= 0 || !(std::isnan(own) || std::isnan(widen(logits[0])));
  return {largest, sum, own, label >= 0 && beaten == 0 && ordered};
}

// plain: a label a row; mixed: rows may have pairs; general: and classes weights and a share of
// each label. Kernels of their own: mixed rows need a third more registers, weights as many again.
enum class Form { plain, mixed, general };

// `total` and `scale`: of what is wanted of all classes together, and of the gradient.
template <Form form, class T>
__device__ inline void write_gradient(const LogitRow<T>& row, const Normalizer& of,
                                      const Targets& targets, const Criterion& criterion,
                                      int classes, float total, float scale, T* d_row) {
  constexpr int width = LogitRow<T>::width;
  const float factor = scale * total / of.sum;
  row.each([&](unsigned first, const float(&x)[width]) {
    float d[width];
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const int k = static_cast<int>(first) + i;
      const bool counts = targets.label >= 0 && k < classes;
      const float softmax = expf(x[i] - of.largest) * factor;
      float own = k == targets.label ? scale : 0;
      if constexpr (form == Form::mixed)
        own = own * targets.weight + (k == targets.pair ? scale * targets.rest : 0);
      if constexpr (form == Form::general)
        own = counts ? scale * wanted(criterion, targets, k, classes) : 0;
      d[i] = counts ? softmax - own : 0;
    }
    store(d_row + first, d);
  });
}

// The sum of the classes' weights times how far each logit is below the largest one.
template <int group, class T>
__device__ inline float weighted_distance(const LogitRow<T>& row, const Criterion& criterion,
                                          int classes, float largest) {
  constexpr int width = LogitRow<T>::width;
  float sum = 0;
  row.each([&](unsigned first, const float(&x)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const int k = static_cast<int>(first) + i;
      if (k < classes) sum += weight_of(criterion, k) * (largest - x[i]);
    }
  });
  return reduce<group>(sum, 0.0F, Sum{});
}

// The row's loss but for what smoothing adds to it; `total` as above.
template <Form form, class T>
__device__ inline float label_loss(const T* logits, const Normalizer& of, const Targets& targets,
                                   const Criterion& criterion, float total) {
  if constexpr (form == Form::general) {
    float sum = targets.weight * weight_of(criterion, targets.label) * (of.largest - of.own);
    if (targets.pair >= 0)
      sum += targets.rest * weight_of(criterion, targets.pair) *
             (of.largest - widen(logits[targets.pair]));
    return (1 - criterion.smoothing) * sum + total * logf(of.sum);
  }
  float logit = of.own;
  if (form == Form::mixed && targets.pair >= 0)
    logit = targets.weight * logit + targets.rest * widen(logits[targets.pair]);
  return of.largest - logit + logf(of.sum);
}

// What smoothing wants of all classes together.
template <Form form>
__device__ inline float smooth_total(const Criterion& criterion, int classes) {
  if (form != Form::general || criterion.smoothing == 0) return 0;
  float sum = 0;
  for (int k = static_cast<int>(threadIdx.x); k < classes; k += static_cast<int>(blockDim.x))
    sum += weight_of(criterion, k);
  return criterion.smoothing / static_cast<float>(classes) * block_reduce(sum, 0.0F, Sum{});
}

// What the mean divides by; 0 where no row counts.
template <Form form>
__device__ inline float divisor(const Criterion& criterion, const std::int32_t* labels,
                                const RowPlan* plans, unsigned rows) {
  if constexpr (form == Form::general) return label_weights(criterion, labels, plans, rows);
  int counted = 0;
  for (unsigned r = threadIdx.x; r < rows; r += blockDim.x) counted += labels[r] >= 0;
  return static_cast<float>(block_reduce(counted, 0, Sum{}));
}

struct XentOut {
  Score* scores;
  std::uint32_t* ticket;
  float* loss;
  std::int32_t* correct;
};

// 4 blocks a multiprocessor, 64 registers, where rows are mixed, 3 where classes have weights: left
// to itself ptxas spills some words to have another.
template <class T, int group, Form form>
__global__ void __launch_bounds__(threads, form == Form::plain   ? 0
                                           : form == Form::mixed ? 4
                                                                 : 3)
    softmax_xent_kernel(XentRows shape, const T* __restrict__ logits,
                        const std::int32_t* __restrict__ labels, const RowPlan* __restrict__ plans,
                        Criterion criterion, T* __restrict__ d_logits,
                        const StepState* __restrict__ state, XentOut out) {
  const unsigned lanes = group == whole_block ? blockDim.x : group;
  const unsigned rows_a_block = blockDim.x / lanes, lane = threadIdx.x % lanes;
  const float rows = divisor<form>(criterion, labels, plans, shape.rows);
  const float smooth = smooth_total<form>(criterion, shape.classes);
  const float scale = rows > 0 ? (state != nullptr ? state->loss_scale : 1) / rows : 0;

  Score own{};
  for (unsigned first = blockIdx.x * rows_a_block; first < shape.rows;
       first += gridDim.x * rows_a_block) {
    const unsigned r = first + threadIdx.x / lanes;
    const bool inside = r < shape.rows;  // whole warps go on, as they reduce together
    const std::int32_t label = inside ? labels[r] : -1;
    const std::size_t offset =
        inside ? std::size_t{r} * shape.vectors * LogitRow<T>::width : std::size_t{0};
    const LogitRow<T> row(logits + offset, inside ? shape.vectors : 0, shape.classes, lane, lanes);
    const Normalizer of = normalizer<group>(row, logits + offset, label);
    float far = 0;
    if (form == Form::general && criterion.smoothing != 0)
      far = weighted_distance<group>(row, criterion, shape.classes, of.largest);
    Targets targets{label, -1, 1, 0};  // read late: held through the reduction it would spill
    if (form != Form::plain && inside) targets = targets_of(labels, plans, r);
    float total = 1;
    if (form == Form::general && label >= 0)
      total = (1 - criterion.smoothing) * weight_of(criterion, targets) + smooth;
    if (d_logits != nullptr)
      write_gradient<form>(row, of, targets, criterion, shape.classes, total, scale,
                           d_logits + offset);
    if (lane != 0 || targets.label < 0) continue;
    own.loss += label_loss<form>(logits + offset, of, targets, criterion, total);
    if (form == Form::general)
      own.loss += criterion.smoothing / static_cast<float>(shape.classes) * far;
    own.correct += of.top ? 1 : 0;
  }

  Score total = block_sum(own);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) out.scores[blockIdx.x] = total;
    if (!last_block(out.ticket)) return;
    Score sum{};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
      sum.loss += out.scores[b].loss;
      sum.correct += out.scores[b].correct;
    }
    total = block_sum(sum);
  }
  if (threadIdx.x != 0) return;
  *out.loss = rows > 0 ? total.loss / rows : 0;
  *out.correct = total.correct;
}

template <class T, int group>
auto kernel_of(const XentBuffers& buffers) {
  if (!buffers.criterion.plain()) return softmax_xent_kernel<T, group, Form::general>;
  return buffers.rows != nullptr ? softmax_xent_kernel<T, group, Form::mixed>
                                 : softmax_xent_kernel<T, group, Form::plain>;
}

template <class T, int group>
void launch_groups(const XentRows& shape, const XentBuffers& buffers, cudaStream_t stream) {
  // Whole warps; a block for a row has as many lanes as the row has vectors.
  const unsigned lanes = (shape.vectors + 31) / 32 * 32;
  const unsigned block = group == whole_block && lanes < threads ? lanes : threads;
  const unsigned rows_per_block = group == whole_block ? 1 : threads / (group > 0 ? group : 1);
  const unsigned wanted = blocks_for(shape.rows, rows_per_block);
  const unsigned blocks = wanted < most_xent_blocks ? wanted : most_xent_blocks;
  const XentOut out{static_cast<Score*>(buffers.workspace), buffers.ticket, buffers.loss,
                    buffers.correct};
  launch("softmax_xent", kernel_of<T, group>(buffers),
         {.grid = blocks > 0 ? blocks : 1, .block = block, .stream = stream}, shape,
         static_cast<const T*>(buffers.logits), buffers.labels, buffers.rows, buffers.criterion,
         static_cast<T*>(buffers.d_logits), buffers.state, out);
}

}  // namespace

std::size_t softmax_xent_workspace(const RowsShape& shape) {
  const auto rows = static_cast<std::size_t>(shape.rows);
  return (rows < most_xent_blocks ? rows : most_xent_blocks) * sizeof(Score);
}

void softmax_xent(const RowsShape& shape, const XentBuffers& buffers, DType dtype,
                  cudaStream_t stream) {
  dispatch("softmax_xent", dtype, [&]<class T>() {
    const XentRows rows{
        .rows = index32("softmax_xent", "rows", shape.rows),
        .vectors = index32("softmax_xent", "logits a row", shape.pitch, vector_width<T>),
        .classes = static_cast<int>(index32("softmax_xent", "classes", shape.classes))};
    if (rows.vectors <= 2) return launch_groups<T, 2>(rows, buffers, stream);
    if (rows.vectors <= 4) return launch_groups<T, 4>(rows, buffers, stream);
    if (rows.vectors <= 8) return launch_groups<T, 8>(rows, buffers, stream);
    if (rows.vectors <= 64) return launch_groups<T, 32>(rows, buffers, stream);
    launch_groups<T, whole_block>(rows, buffers, stream);
  });
}

}  // namespace warpstep::cuda

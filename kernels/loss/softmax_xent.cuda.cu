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
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/loss/logit_row.cuh"
#include "kernels/loss/loss.cuda.h"
#include "kernels/loss/targets.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned most_blocks = 4 * 132;
constexpr int whole_block = 0;  // in place of a group of lanes

struct Rows {
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
    softmax_xent_kernel(Rows shape, const T* __restrict__ logits,
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
void launch_groups(const Rows& shape, const XentBuffers& buffers, cudaStream_t stream) {
  // Whole warps; a block for a row has as many lanes as the row has vectors.
  const unsigned lanes = (shape.vectors + 31) / 32 * 32;
  const unsigned block = group == whole_block && lanes < threads ? lanes : threads;
  const unsigned rows_a_block = group == whole_block ? 1 : threads / (group > 0 ? group : 1);
  const unsigned wanted = blocks_for(shape.rows, rows_a_block);
  const unsigned blocks = wanted < most_blocks ? wanted : most_blocks;
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
  return (rows < most_blocks ? rows : most_blocks) * sizeof(Score);
}

void softmax_xent(const RowsShape& shape, const XentBuffers& buffers, DType dtype,
                  cudaStream_t stream) {
  dispatch("softmax_xent", dtype, [&]<class T>() {
    const Rows rows{
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

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
#include "kernels/cuda/vector.cuh"
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

// A row of logits as the lanes of a group hold it: -inf behind the classes.
template <class T>
class LogitRow {
 public:
  static constexpr int width = vector_width<T>;

  __device__ LogitRow(const T* row, unsigned vectors, int classes, unsigned lane, unsigned lanes)
      : row_(row), vectors_(vectors), classes_(classes), lane_(lane), lanes_(lanes) {
    if (lane < vectors) fetch(lane, first_);
  }
  // f(class of the first element, width elements) for each vector of the lane.
  template <class F>
  __device__ void each(F f) const {
    if (lane_ >= vectors_) return;
    f(lane_ * width, first_);
    for (unsigned v = lane_ + lanes_; v < vectors_; v += lanes_) {
      float x[width];
      fetch(v, x);
      f(v * width, x);
    }
  }

 private:
  __device__ void fetch(unsigned vector, float (&x)[width]) const {
    load(row_ + std::size_t{vector} * width, x);
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (static_cast<int>(vector * width) + i >= classes_) x[i] = -INFINITY;
  }

  const T* row_;
  unsigned vectors_;
  int classes_;
  unsigned lane_, lanes_;
  float first_[width];
};

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

template <bool mixed, class T>
__device__ inline void write_gradient(const LogitRow<T>& row, const Normalizer& of,
                                      const Targets& targets, int classes, float scale, T* d_row) {
  constexpr int width = LogitRow<T>::width;
  const float factor = scale / of.sum;
  row.each([&](unsigned first, const float(&x)[width]) {
    float d[width];
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const int k = static_cast<int>(first) + i;
      const float softmax = expf(x[i] - of.largest) * factor;
      float wanted = k == targets.label ? scale : 0;
      if constexpr (mixed)
        wanted = wanted * targets.weight + (k == targets.pair ? scale * targets.rest : 0);
      d[i] = targets.label < 0 || k >= classes ? 0 : softmax - wanted;
    }
    store(d_row + first, d);
  });
}

// mixed: rows may have pairs. A kernel of its own, as it needs a third more registers: 4 blocks a
// multiprocessor, 64 registers: left to itself ptxas spills a word to have a fifth.
template <class T, int group, bool mixed>
__global__ void __launch_bounds__(threads, mixed ? 4 : 0)
    softmax_xent_kernel(Rows shape, const T* __restrict__ logits,
                        const std::int32_t* __restrict__ labels, const RowPlan* __restrict__ plans,
                        T* __restrict__ d_logits, const StepState* __restrict__ state,
                        Score* scores, std::uint32_t* ticket, float* loss, std::int32_t* correct) {
  const unsigned lanes = group == whole_block ? blockDim.x : group;
  const unsigned rows_a_block = blockDim.x / lanes, lane = threadIdx.x % lanes;
  int counted = 0;
  for (unsigned r = threadIdx.x; r < shape.rows; r += blockDim.x) counted += labels[r] >= 0;
  const auto rows = static_cast<float>(max(block_reduce(counted, 0, Sum{}), 1));
  const float scale = (state != nullptr ? state->loss_scale : 1) / rows;

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
    Targets targets{label, -1, 1, 0};  // read late: held through the reduction it would spill
    if (mixed && inside) targets = targets_of(labels, plans, r);
    if (d_logits != nullptr)
      write_gradient<mixed>(row, of, targets, shape.classes, scale, d_logits + offset);
    if (lane != 0 || targets.label < 0) continue;
    float logit = of.own;
    if (mixed && targets.pair >= 0)
      logit = targets.weight * logit + targets.rest * widen(logits[offset + targets.pair]);
    own.loss += of.largest - logit + logf(of.sum);
    own.correct += of.top ? 1 : 0;
  }

  Score total = block_sum(own);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) scores[blockIdx.x] = total;
    if (!last_block(ticket)) return;
    Score sum{};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
      sum.loss += scores[b].loss;
      sum.correct += scores[b].correct;
    }
    total = block_sum(sum);
  }
  if (threadIdx.x != 0) return;
  *loss = total.loss / rows;
  *correct = total.correct;
}

template <class T, int group>
void launch_groups(const Rows& shape, const XentBuffers& buffers, cudaStream_t stream) {
  // Whole warps; a block for a row has as many lanes as the row has vectors.
  const unsigned lanes = (shape.vectors + 31) / 32 * 32;
  const unsigned block = group == whole_block && lanes < threads ? lanes : threads;
  const unsigned rows_a_block = group == whole_block ? 1 : threads / (group > 0 ? group : 1);
  const unsigned wanted = blocks_for(shape.rows, rows_a_block);
  const unsigned blocks = wanted < most_blocks ? wanted : most_blocks;
  const auto kernel = buffers.rows != nullptr ? softmax_xent_kernel<T, group, true>
                                              : softmax_xent_kernel<T, group, false>;
  launch("softmax_xent", kernel,
         {.grid = blocks > 0 ? blocks : 1, .block = block, .stream = stream}, shape,
         static_cast<const T*>(buffers.logits), buffers.labels, buffers.rows,
         static_cast<T*>(buffers.d_logits), buffers.state, static_cast<Score*>(buffers.workspace),
         buffers.ticket, buffers.loss, buffers.correct);
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

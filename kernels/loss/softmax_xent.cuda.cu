// softmax_xent: softmax, cross-entropy, top-1 and the gradient of the mean loss in one pass over
// the logits: each logit is read from memory once and its gradient written once, 4 bytes per 16-bit
// logit. 4096x1000 in f16 are 16 MB, 4 us, bound by memory; 128x10 is one block, bound by its chain
// of loads and barriers.
//
// A row belongs to a group of 2, 4, 8 or 32 lanes, enough for one vector of 16 bytes each where
// possible, or to a whole block if it has more than 64 vectors. A lane keeps its first vector in
// registers, which covers rows of up to 256 elements of 16 bits per warp and 4096 per block. What
// is left of longer rows is read again for the gradient, from the caches: a block finds maximum and
// sum in one pass, in which each new maximum rescales the sum. The 50,257 logits of a row of GPT-2
// are 100 KB: two blocks of 512 threads per multiprocessor have 27 MB of rows in the L2 cache of 50
// MB, four blocks of 256 would have twice as much. Where a multiprocessor has shared memory for
// two, each keeps its row there, and the next row comes while this one's gradient is written.
//
// Instructions may bound it, too: 4 bytes at 3 TB/s leave an H100 38 of them per logit. Plain rows
// of a block take 17, half of them in each pass; so what is rare, such as the label and padding, is
// handled apart.
//
// The gradient needs the number of rows that are not padding from the start: every block reads all
// labels, 4 bytes per row, from the caches. That is why there are no more blocks than fill the
// device: 1024 threads per multiprocessor.
#include <cfloat>
#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/loss/logit_row.cuh"
#include "kernels/loss/loss.cuda.h"
#include "kernels/loss/targets.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned most_xent_threads = 1024 * 132;
constexpr unsigned least_block = 96;  // of a row of more than 64 vectors
constexpr unsigned most_xent_blocks = most_xent_threads / least_block;
constexpr int whole_block = 0;  // in place of a group of lanes

struct XentRows {
  unsigned rows, vectors;  // vectors per row
  int classes;
};

// Sums over the rows of a block, then over the grid.
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

// plain: one label per row; mixed: rows may have a second label; general: also class weights and
// label smoothing. Separate kernels, because mixed rows need a third more registers, and weights
// another third.
enum class Form { plain, mixed, general };

// Threads of a block, and blocks per multiprocessor for which there must be registers. Without
// these bounds ptxas spills a few words on some architectures to fit one more block.
template <int group, Form form>
inline constexpr unsigned xent_threads = group != whole_block || form == Form::general ? 256 : 512;
template <int group, Form form>
inline constexpr unsigned xent_resident = form == Form::general  ? 3
                                          : group == whole_block ? 2
                                                                 : 4;

// A row's log-sum-exp is largest + log(sum); `own` is the label's logit.
struct Normalizer {
  float largest, sum, own;
  bool top;  // in lane 0: the label's logit is the first of the largest ones
};

// Whether a class before the label, of the label's vector, has an equal logit.
template <int width, class T>
__device__ inline bool has_equal_before(const T* logits, int label, float own) {
  const int place = label % width;
  float x[width];
  load(logits + (label - place), x);
  bool found = false;
#pragma unroll
  for (int i = 0; i < width; ++i) found = found || (i < place && x[i] == own);
  return found;
}

// Whether `value` is true in any lane of the row.
template <int group>
__device__ inline bool any_of(bool value) {
  if constexpr (group == whole_block)
    return __syncthreads_or(value ? 1 : 0) != 0;
  else
    return group_reduce<group>(value ? 1 : 0, Max{}) != 0;
}

template <int group, class Row, class T>
__device__ inline Normalizer normalizer(const Row& row, const T* logits, int label, unsigned lane) {
  constexpr int width = Row::width;
  // All three before the reductions: after them other lanes may have written gradients over the
  // logits.
  const float own = label >= 0 ? widen(logits[label]) : 0;
  // A NaN compares as neither larger nor smaller: it wins only at class 0, as in top1_kernel.
  bool beaten = label > 0 && (std::isnan(own) || std::isnan(widen(logits[0])));
  if (lane == 0 && label > 0) beaten = beaten || has_equal_before<width>(logits, label, own);
  float part = -INFINITY, sum = 0;  // the lane's largest; a block's: the sum of e^(x - part)
  unsigned first = 0;               // the first vector with the lane's largest
  row.each([&](unsigned v, const float(&x)[width]) {
    float largest = part;
#pragma unroll
    for (int i = 0; i < width; ++i) largest = fmaxf(largest, x[i]);
    if (largest > part) first = v;
    if constexpr (group == whole_block) {
      const float base = fmaxf(largest, -FLT_MAX);  // e^(-inf - base) is 0, not NaN
      sum *= exponential<T>(part - base);
#pragma unroll
      for (int i = 0; i < width; ++i) sum += exponential<T>(x[i] - base);
    }
    part = largest;
  });
  const float largest = reduce<group>(part, -INFINITY, Max{});
  if (own < largest || (own == part && label >= 0 && first < static_cast<unsigned>(label) / width))
    beaten = true;
  beaten = any_of<group>(beaten);
  if constexpr (group == whole_block)
    sum *= exponential<T>(part - largest);  // of a row of nothing but -inf NaN, as the sum is
  else
    row.each([&](unsigned, const float(&x)[width]) {
#pragma unroll
      for (int i = 0; i < width; ++i) sum += exponential<T>(x[i] - largest);
    });
  sum = reduce<group>(sum, 0.0F, Sum{});
  return {largest, sum, own, label >= 0 && !beaten};
}

// d[k % width] -= share, if class k is in the vector v.
template <int width>
__device__ inline void take(float (&d)[width], unsigned v, int k, float share) {
  const int place = k - static_cast<int>(v * width);
#pragma unroll
  for (int i = 0; i < width; ++i)
    if (i == place) d[i] -= share;
}

// d_row = scale * (total * softmax - target); 0 for padding. `total` is the sum of the row's
// targets over all classes.
template <Form form, class Row, class T>
__device__ inline void write_gradient(const Row& row, const Normalizer& of, const Targets& targets,
                                      const Criterion& criterion, int classes, float total,
                                      float scale, T* d_row) {
  constexpr int width = Row::width;
  if (targets.label < 0) return row.clear(d_row);
  const float factor = scale * total / of.sum;
  // -1 / width is in no vector.
  const auto of_label = static_cast<unsigned>(targets.label) / width;
  const auto of_pair = static_cast<unsigned>(targets.pair) / width;
  row.finish([&](unsigned v, const float(&x)[width]) {
    float d[width];
#pragma unroll
    for (int i = 0; i < width; ++i) d[i] = exponential<T>(x[i] - of.largest) * factor;
    if constexpr (form == Form::general) {
#pragma unroll
      for (int i = 0; i < width; ++i)
        if (const int k = static_cast<int>(v * width) + i; k < classes)
          d[i] -= scale * wanted(criterion, targets, k, classes);
      row.pad(v, d, 0);
    } else if (v == of_label || (form == Form::mixed && v == of_pair) || !row.is_whole(v)) {
      take(d, v, targets.label, form == Form::mixed ? scale * targets.weight : scale);
      if constexpr (form == Form::mixed) take(d, v, targets.pair, scale * targets.rest);
      row.pad(v, d, 0);
    }
    reinterpret_cast<typename Row::Vector*>(d_row)[v] = pack<T>(d);
  });
}

// The sum over classes of weight * (largest - logit): what smoothing needs.
template <int group, class Row>
__device__ inline float weighted_distance(const Row& row, const Criterion& criterion, int classes,
                                          float largest) {
  constexpr int width = Row::width;
  float sum = 0;
  row.each([&](unsigned v, const float(&x)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const int k = static_cast<int>(v * width) + i;
      if (k < classes) sum += weight_of(criterion, k) * (largest - x[i]);
    }
  });
  return reduce<group>(sum, 0.0F, Sum{});
}

// The row's loss without the term of smoothing; `total` as above.
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

// The sum of smoothing's targets over all classes.
template <Form form>
__device__ inline float smooth_total(const Criterion& criterion, int classes) {
  if (form != Form::general || criterion.smoothing == 0) return 0;
  float sum = 0;
  for (int k = static_cast<int>(threadIdx.x); k < classes; k += static_cast<int>(blockDim.x))
    sum += weight_of(criterion, k);
  return criterion.smoothing / static_cast<float>(classes) * block_reduce(sum, 0.0F, Sum{});
}

// The divisor of the mean loss; 0 where every row is padding.
template <Form form>
__device__ inline float divisor(const Criterion& criterion, const std::int32_t* labels,
                                const RowPlan* plans, unsigned rows) {
  if constexpr (form == Form::general) return label_weights(criterion, labels, plans, rows);
  constexpr unsigned ahead = 8;  // loads in flight: until they are here a block does nothing
  int counted = 0;
  for (unsigned first = threadIdx.x; first < rows; first += ahead * blockDim.x) {
    std::int32_t label[ahead];
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      const unsigned r = first + j * blockDim.x;
      label[j] = r < rows ? labels[r] : -1;
    }
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) counted += label[j] >= 0;
  }
  return static_cast<float>(block_reduce(counted, 0, Sum{}));
}

struct XentOut {
  Score* scores;
  std::uint32_t* ticket;
  float* loss;
  std::int32_t* correct;
};

// Plain rows of a block may be `kept` in shared memory.
template <class T, int group, Form form, bool kept>
__global__ void __launch_bounds__(xent_threads<group, form>, xent_resident<group, form>)
    softmax_xent_kernel(XentRows shape, const T* logits, const std::int32_t* __restrict__ labels,
                        const RowPlan* __restrict__ plans, Criterion criterion,
                        T* d_logits,  // may be the logits'
                        const StepState* __restrict__ state, XentOut out) {
  static_assert(!kept || (group == whole_block && form == Form::plain));
  await_previous();
  const unsigned lanes = group == whole_block ? blockDim.x : group;
  const unsigned rows_of_block = blockDim.x / lanes, lane = threadIdx.x % lanes;
  const float rows = divisor<form>(criterion, labels, plans, shape.rows);
  const float smooth = smooth_total<form>(criterion, shape.classes);
  const float scale = rows > 0 ? (state != nullptr ? state->loss_scale : 1) / rows : 0;

  Score own{};
  const auto place = [&](unsigned r) {
    return std::size_t{r} * shape.vectors * static_cast<unsigned>(vector_width<T>);
  };
  const auto take_row = [&](const auto& row, unsigned r, bool inside, std::size_t offset) {
    const std::int32_t label = inside ? labels[r] : -1;
    if (group == whole_block && label < 0) {  // the block's one row
      if (d_logits != nullptr) row.clear(d_logits + offset);
      return;
    }
    const Normalizer of = normalizer<group>(row, logits + offset, label, lane);
    float distance = 0;
    if (form == Form::general && criterion.smoothing != 0)
      distance = weighted_distance<group>(row, criterion, shape.classes, of.largest);
    // Read here, not before the reduction: kept in registers through it, the targets would spill.
    Targets targets{label, -1, 1, 0};
    if (form != Form::plain && inside) targets = targets_of(labels, plans, r);
    float total = 1;
    if (form == Form::general && label >= 0)
      total = (1 - criterion.smoothing) * weight_of(criterion, targets) + smooth;
    // Gradients may replace logits: of the label and of class 0, which any lane may have read. A
    // block has met in its reductions.
    if constexpr (group != whole_block) __syncwarp();
    if (d_logits != nullptr)
      write_gradient<form>(row, of, targets, criterion, shape.classes, total, scale,
                           d_logits + offset);
    if (lane != 0 || targets.label < 0) return;
    own.loss += label_loss<form>(logits + offset, of, targets, criterion, total);
    if (form == Form::general)
      own.loss += criterion.smoothing / static_cast<float>(shape.classes) * distance;
    own.correct += of.top ? 1 : 0;
  };
  if constexpr (kept) {
    const auto begin = [&](unsigned r) { return r < shape.rows ? logits + place(r) : nullptr; };
    KeptLogitRow<T> row(begin(blockIdx.x), dynamic_shared<unsigned char>(), shape.vectors,
                        shape.classes, lane, lanes);
    for (unsigned r = blockIdx.x; r < shape.rows; r += gridDim.x) {
      row.begin(begin(r + gridDim.x));
      take_row(row, r, true, place(r));
    }
  } else {
    // A second vector on its way has room in the registers of plain rows alone.
    using Row = LogitRow<T, group == whole_block && form == Form::plain ? 2 : 1>;
    for (unsigned first = blockIdx.x * rows_of_block; first < shape.rows;
         first += gridDim.x * rows_of_block) {
      const unsigned r = first + threadIdx.x / lanes;
      const bool inside = r < shape.rows;  // whole warps stay in the loop: they reduce together
      const std::size_t offset = inside ? place(r) : 0;
      const Row row(logits + offset, inside ? shape.vectors : 0, shape.classes, lane, lanes);
      take_row(row, r, inside, offset);
    }
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
  *out.loss = rows > 0 ? total.loss / rows : total.loss;
  *out.correct = total.correct;
}

template <class T, int group, Form form, bool kept = false>
void launch_form(const XentRows& shape, const XentBuffers& buffers, cudaStream_t stream) {
  // Whole warps; a block with one row has only the warps that the row's vectors need.
  constexpr unsigned most = xent_threads<group, form>;
  const unsigned lanes = (shape.vectors + 31) / 32 * 32;
  const unsigned block = group == whole_block && lanes < most ? lanes : most;
  const unsigned rows_of_block = group == whole_block ? 1 : most / (group > 0 ? group : 1);
  const unsigned wanted = blocks_for(shape.rows, rows_of_block);
  const unsigned fitting = most_xent_threads / block;
  const unsigned blocks = wanted < fitting ? wanted : fitting;
  const XentOut out{static_cast<Score*>(buffers.workspace), buffers.ticket, buffers.loss,
                    buffers.correct};
  const auto kernel = softmax_xent_kernel<T, group, form, kept>;
  const std::size_t shared = kept ? std::size_t{shape.vectors} * 16 : 0;
  allow_shared(reinterpret_cast<const void*>(kernel), shared, "softmax_xent");
  launch_next(
      "softmax_xent", kernel,
      {.grid = blocks > 0 ? blocks : 1, .block = block, .shared_bytes = shared, .stream = stream},
      shape, static_cast<const T*>(buffers.logits), buffers.labels, buffers.rows, buffers.criterion,
      static_cast<T*>(buffers.d_logits), buffers.state, out);
}

template <class T, int group>
void launch_groups(const XentRows& shape, const XentBuffers& buffers, cudaStream_t stream) {
  if (!buffers.criterion.plain())
    launch_form<T, group, Form::general>(shape, buffers, stream);
  else if (buffers.rows != nullptr)
    launch_form<T, group, Form::mixed>(shape, buffers, stream);
  else
    launch_form<T, group, Form::plain>(shape, buffers, stream);
}

}  // namespace

std::size_t softmax_xent_workspace(const RowsShape& shape) {
  const auto rows = static_cast<std::size_t>(shape.rows);
  return (rows < most_xent_blocks ? rows : most_xent_blocks) * sizeof(Score);
}

// Shorter rows of a block fit into registers and the first cache; longer ones do not fit twice.
bool may_keep_rows(const RowsShape& shape, DType dtype) {
  constexpr std::int64_t least = 2 * xent_threads<whole_block, Form::plain> * 16, most = 99 * 1024;
  const std::int64_t bytes = shape.pitch * static_cast<std::int64_t>(size_bytes(dtype));
  return size_bytes(dtype) == 2 && bytes > least && bytes <= most;
}

void softmax_xent(const RowsShape& shape, const XentBuffers& buffers, DType dtype,
                  cudaStream_t stream) {
  dispatch("softmax_xent", dtype, [&]<class T>() {
    const XentRows rows{
        .rows = index32("softmax_xent", "rows", shape.rows),
        .vectors = index32("softmax_xent", "logits per row", shape.pitch, vector_width<T>),
        .classes = static_cast<int>(index32("softmax_xent", "classes", shape.classes))};
    if (rows.vectors <= 2) return launch_groups<T, 2>(rows, buffers, stream);
    if (rows.vectors <= 4) return launch_groups<T, 4>(rows, buffers, stream);
    if (rows.vectors <= 8) return launch_groups<T, 8>(rows, buffers, stream);
    if (rows.vectors <= 64) return launch_groups<T, 32>(rows, buffers, stream);
    if constexpr (sizeof(T) == 2)
      if (buffers.keeps_rows && may_keep_rows(shape, dtype) && buffers.d_logits != nullptr &&
          buffers.criterion.plain() && buffers.rows == nullptr)
        return launch_form<T, whole_block, Form::plain, true>(rows, buffers, stream);
    launch_groups<T, whole_block>(rows, buffers, stream);
  });
}

}  // namespace warpstep::cuda

// Attention on the CPU, a sequence's head per task of the team. Strips of queries meet blocks of
// keys: only a strip's scores with a block are in memory, and blocks that no query of the strip
// sees are left out. Forward keeps each row's largest score and the sum of the exponentials so far,
// and rescales what it has summed when a block has a larger score (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018); the adjoint makes the probabilities again from the
// statistics. Bound by arithmetic: 2 products forward, 5 in the adjoint, and an exponential per
// score in each. Figures: bench/RECORDS.md.
#include <omp.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/attention/attention.cpu.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/cpu/bf16_loops.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropping.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/strided_tile.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// Queries [i, i + rows) and keys [j, j + keys): row r sees the first visible(r) keys of the block.
struct PairBlock {
  std::int64_t rows, keys;
  std::int64_t diagonal;  // row r sees keys up to r - diagonal

  std::int64_t visible(std::int64_t row) const {
    const std::int64_t count = row + 1 - diagonal;
    return count < 0 ? 0 : count > keys ? keys : count;
  }
  // The first row that sees the key.
  std::int64_t first_row(std::int64_t key) const {
    const std::int64_t row = key + diagonal;
    return row < 0 ? 0 : row > rows ? rows : row;
  }
};

// What they do: attention.inc.
struct AttentionLoops {
  void (*scores)(const PairBlock& block, const float* a, std::int64_t a_row, std::int64_t depth,
                 const float* b, float* s, std::int64_t s_row);
  void (*sums_of_keys)(const PairBlock& block, const float* p, std::int64_t p_row, const float* b,
                       std::int64_t b_rows, std::int64_t columns, float* c, std::int64_t c_row,
                       bool accumulate);
  void (*sums_of_rows)(const PairBlock& block, const float* p, std::int64_t p_row, const float* b,
                       std::int64_t b_row, std::int64_t columns, float* c, std::int64_t c_row);
  std::int64_t strip_rows;
  int panel;  // columns of a tile
};

namespace attention {
#define WARPSTEP_SOURCE "kernels/attention/attention.inc"
#include "engine/core/each_set.inc"
}  // namespace attention

const AttentionLoops& attention_loops =
    of_isa(attention::avx512::loops, attention::avx2::loops, attention::plain::loops);

// Rows of scores are computed in groups of this many; what a row does not see becomes zero.
constexpr std::int64_t group = 16;
constexpr float unseen = -3e38F;  // below every finite score
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

constexpr std::int64_t in_groups(std::int64_t count) {
  return (count + group - 1) / group * group;
}

WARPSTEP_LOOP float largest_loop(const float* s, std::int64_t count, float largest) {
  float lanes[group];
  for (float& lane : lanes) lane = largest;
  for (std::int64_t j = 0; j < count; j += group)
    for (std::int64_t l = 0; l < group; ++l) lanes[l] = s[j + l] > lanes[l] ? s[j + l] : lanes[l];
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}
const auto largest_of = vectorized<largest_loop>();

WARPSTEP_LOOP void probabilities_loop(float* s, std::int64_t count, float largest) {
  for (std::int64_t j = 0; j < count; ++j) s[j] = exp_within_range(s[j] - largest);
}
const auto probabilities = vectorized<probabilities_loop>();

WARPSTEP_LOOP float sum_loop(const float* s, std::int64_t count) {
  float lanes[group] = {};
  for (std::int64_t j = 0; j < count; j += group)
    for (std::int64_t l = 0; l < group; ++l) lanes[l] += s[j + l];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
const auto sum_of = vectorized<sum_loop>();

WARPSTEP_LOOP void multiply_loop(float* x, const float* factors, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) x[j] *= factors[j];
}
const auto multiply_by = vectorized<multiply_loop>();

// s: scores, then probabilities; d: their gradients, then the scores'.
WARPSTEP_LOOP void score_gradients_loop(float* s, float* d, std::int64_t count, float statistic,
                                        float mean) {
  for (std::int64_t j = 0; j < count; ++j) {
    s[j] = exp_within_range(s[j] - statistic);
    d[j] = s[j] * (d[j] - mean);
  }
}
const auto score_gradients = vectorized<score_gradients_loop>();

// Likewise with dropout; s becomes what the forward half multiplied the values by.
WARPSTEP_LOOP void dropped_gradients_loop(float* s, float* d, const float* factors,
                                          std::int64_t count, float statistic, float mean) {
  for (std::int64_t j = 0; j < count; ++j) {
    const float p = exp_within_range(s[j] - statistic);
    d[j] = p * (factors[j] * d[j] - mean);
    s[j] = p * factors[j];
  }
}
const auto dropped_gradients = vectorized<dropped_gradients_loop>();

// to [rows, to_row] = from times scale, or added to it.
WARPSTEP_LOOP void copy_rows_loop(const float* from, std::int64_t from_row, std::int64_t rows,
                                  std::int64_t columns, float scale, bool add, float* to,
                                  std::int64_t to_row) {
  for (std::int64_t r = 0; r < rows; ++r, from += from_row, to += to_row)
    if (add)
      for (std::int64_t d = 0; d < columns; ++d) to[d] += from[d] * scale;
    else
      for (std::int64_t d = 0; d < columns; ++d) to[d] = from[d] * scale;
}
const auto copy_rows = vectorized<copy_rows_loop>();

// to [rows, columns] = from, whose rows lie in different pages: no hardware guesses the next ones.
WARPSTEP_LOOP void widen_rows_loop(const Bf16* from, std::int64_t from_row, std::int64_t rows,
                                   std::int64_t columns, float* to) {
  constexpr std::int64_t ahead = 24;
  for (std::int64_t r = 0; r < rows; ++r, from += from_row, to += columns) {
    for (std::int64_t d = 0; d < columns; d += 2 * group)
      __builtin_prefetch(from + ahead * from_row + d);
    for (std::int64_t d = 0; d < columns; ++d) to[d] = widened(from[d]);
  }
}
const auto widen_rows = vectorized<widen_rows_loop>();

WARPSTEP_LOOP float dot_loop(const float* a, const float* b, std::int64_t count) {
  float lanes[group] = {};
  std::int64_t d = 0;
  for (; d + group <= count; d += group)
    for (std::int64_t l = 0; l < group; ++l) lanes[l] += a[d + l] * b[d + l];
  float sum = 0;
  for (; d < count; ++d) sum += a[d] * b[d];
  for (const float lane : lanes) sum += lane;
  return sum;
}
const auto dot = vectorized<dot_loop>();

// Of a row: its largest score so far, and the sum of exp(score - largest).
struct Normalizer {
  float largest = unseen, sum = 0;

  void add_block(const PairBlock& pairs, std::int64_t row, float* s, float* sums,
                 std::int64_t features);
  // Of all blocks. NaN where no score is finite, as exp(-inf - -inf) is.
  float factor() const { return largest > unseen ? 1 / sum : not_a_number; }
  float statistic() const { return largest > unseen ? largest + std::log(sum) : not_a_number; }
};

// The scores s of the row become exp(score - largest); what the row has summed so far is rescaled
// if the block has a larger score.
void Normalizer::add_block(const PairBlock& pairs, std::int64_t row, float* s, float* sums,
                           std::int64_t features) {
  const std::int64_t seen = pairs.visible(row), end = in_groups(seen);
  std::fill(s + seen, s + end, unseen);
  const float before = largest;
  largest = largest_of(s, end, before);
  probabilities(s, end, largest);
  std::fill(s + seen, s + in_groups(pairs.keys), 0.0F);
  if (sum > 0 && largest > before) {
    const float factor = std::exp(before - largest);
    copy_rows(sums, 0, 1, features, factor, false, sums, 0);
    sum *= factor;
  }
  sum += sum_of(s, end);
}

StripLayout panels_of(std::int64_t depth) {
  return StripLayout::adjacent(attention_loops.panel, true, depth);
}

std::int64_t in_panels(std::int64_t count) {
  const std::int64_t panel = attention_loops.panel;
  return (count + panel - 1) / panel * panel;
}

constexpr std::int64_t most_keys = 256;  // of a block: its panels stay in the second-level cache

// Of blocks of so many. No power of two: rows would share lines of a cache.
constexpr std::int64_t most_score_row = most_keys + group;

// Pieces of a thread's scratch, in floats: each begins on a cache line.
struct Pieces {
  std::int64_t floats = 0;
  std::int64_t take(std::int64_t count) {
    floats += in_groups(count);
    return floats - in_groups(count);
  }
};

// A head's rows as floats: its queries, or its only part, from `first` on; other parts follow.
struct HeadRows {
  const float* first;
  std::int64_t row, part;  // how far they are apart
};

// What both directions share. Blocks of keys have a length that depends on T alone. All arithmetic
// is in float: a head's operands are copied as floats where they are bf16, its results rounded.
class HeadKernel {
 public:
  HeadKernel(const Attention& op, const Type& qkv)
      : op_(op),
        rows_(op, qkv.shape),
        is_bf16_(qkv.dtype == DType::bf16),
        dropping_(op.dropout, op.layer, rows_.pairs()) {
    const std::int64_t blocks = (rows_.length + most_keys - 1) / most_keys;
    block_keys_ = in_panels((rows_.length + blocks - 1) / blocks);
  }

 protected:
  static std::int64_t strip_rows() { return attention_loops.strip_rows; }
  std::int64_t features() const { return rows_.features; }
  std::int64_t padded() const { return in_panels(features()); }  // products write whole tiles
  // Of the floats of qkv and of its gradient.
  std::int64_t part() const { return is_bf16_ ? features() : rows_.channels(); }
  std::int64_t row() const { return 3 * part(); }
  std::int64_t copied_floats(std::int64_t parts) const {
    return is_bf16_ ? rows_.length * parts * features() : 0;
  }
  // No power of two: rows would share lines of a cache.
  std::int64_t score_row() const { return block_keys_ + group; }
  std::int64_t strip_floats() const { return strip_rows() * padded(); }
  std::int64_t score_floats() const { return strip_rows() * score_row(); }
  std::int64_t factor_floats() const { return op_.dropout > 0 ? block_keys_ + Dropping::slack : 0; }
  // Vectors of D packed by pack_features(); Operand::pack() may write 16 floats beyond.
  std::int64_t feature_floats(std::int64_t keys) const {
    return in_panels(keys) * features() + group;
  }

  // A head's rows in `from`, of `parts` times C elements.
  HeadRows floats_of(const void* from, std::int64_t task, std::int64_t parts, float* copy) const {
    const std::int64_t c = rows_.channels(), at = rows_.offset(task, parts);
    if (!is_bf16_) return {static_cast<const float*>(from) + at, parts * c, c};
    widen_rows(static_cast<const Bf16*>(from) + at, c, rows_.length * parts, features(), copy);
    return {copy, parts * features(), features()};
  }
  // to [panels of keys][D, panel] and to [panels of D][keys, panel], from rows of qkv.
  void pack_features(const float* from, std::int64_t keys, float* to) const {
    by_keys_->pack(from, {0, keys}, panels_of(features()), {0, features()}, nullptr, to);
  }
  void pack_keys(const float* from, std::int64_t keys, float* to) const {
    by_features_->pack(from, {0, features()}, panels_of(keys), {0, keys}, nullptr, to);
  }

  PairBlock block(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t keys) const {
    return {rows, std::min(keys, rows_.visible(i + rows - 1) - j),
            rows_.causal ? j - i : -rows_.length};
  }

  // The factors of the keys from j on of row i of a task.
  const float* factors(const StepState& state, std::int64_t task, std::int64_t i, std::int64_t j,
                       std::int64_t count, float* to) const {
    return dropping_.factors(state, (task * rows_.length + i) * rows_.length + j, count, to);
  }

  // Asks for row i of `parts` times C floats of the next head, while this one computes: its lines
  // are in another page than those before and after them, so no hardware guesses them.
  template <int writes>
  void fetch_next(const void* in, std::int64_t task, std::int64_t i, std::int64_t parts) const {
    if (task + 1 == rows_.tasks() || is_bf16_) return;
    const std::int64_t c = rows_.channels();
    const float* from =
        static_cast<const float*>(in) + rows_.offset(task + 1, parts) + i * parts * c;
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t d = 0; d < features(); d += group)
        __builtin_prefetch(from + part * c + d, writes, 2);
  }

  // Calls run(task, scratch) for every head of every sequence.
  template <class Run>
  void for_heads(void* workspace, std::int64_t floats, Run run) const {
    SharedTasks tasks(rows_.tasks(), threads_);
#pragma omp parallel num_threads(threads_) if (rows_.tasks() > 1)
    tasks.take([&](std::int64_t task) {
      run(task, as<float>(workspace) + omp_get_thread_num() * floats);
    });
  }

  Attention op_;
  AttentionRows rows_;
  bool is_bf16_;
  Dropping dropping_;
  int threads_ = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  std::int64_t block_keys_ = 0;
  std::shared_ptr<const Operand> by_keys_ = operand_of(Strides{row(), 1}),
                                 by_features_ = operand_of(Strides{1, row()});
};

class AttentionForward : HeadKernel {
 public:
  AttentionForward(const Attention& op, const Type& qkv) : HeadKernel(op, qkv) {
    Pieces pieces;
    qkv_ = pieces.take(copied_floats(3));
    keys_ = pieces.take(feature_floats(rows_.length));
    values_ = pieces.take(rows_.length * padded());
    queries_ = pieces.take(strip_floats());
    scores_ = pieces.take(score_floats());
    sums_ = pieces.take(strip_floats());
    factors_ = pieces.take(factor_floats());
    floats_ = pieces.floats;
  }

  std::size_t workspace_bytes() const { return idx(threads_ * floats_) * sizeof(float); }

  void run(const Buffers& b) const {
    for_heads(b.workspace, floats_, [&](std::int64_t task, float* scratch) {
      const HeadRows qkv = floats_of(b.in[0], task, 3, scratch + qkv_);
      pack_features(qkv.first + qkv.part, rows_.length, scratch + keys_);
      pack_keys(qkv.first + 2 * qkv.part, rows_.length, scratch + values_);
      for (std::int64_t i = 0; i < rows_.length; i += strip_rows()) strip(b, qkv, task, i, scratch);
    });
  }

 private:
  void strip(const Buffers& b, const HeadRows& qkv, std::int64_t task, std::int64_t i,
             float* scratch) const {
    const std::int64_t count = std::min(strip_rows(), rows_.length - i);
    copy_rows(qkv.first + i * qkv.row, qkv.row, count, features(),
              static_cast<float>(rows_.scale()), false, scratch + queries_, padded());
    std::array<Normalizer, 64> normalizers;
    for (std::int64_t j = 0; j < rows_.visible(i + count - 1); j += block_keys_) {
      const PairBlock pairs = block(i, count, j, block_keys_);
      attention_loops.scores(pairs, scratch + queries_, padded(), features(),
                             scratch + keys_ + j * features(), scratch + scores_, score_row());
      for (std::int64_t r = 0; r < count; ++r) {
        normalizers[idx(r)].add_block(pairs, r, scratch + scores_ + r * score_row(),
                                      scratch + sums_ + r * padded(), features());
        if (j == 0) fetch_next<0>(b.in[0], task, i + r, 3);
        if (op_.dropout == 0) continue;
        const std::int64_t seen = pairs.visible(r);
        multiply_by(scratch + scores_ + r * score_row(),
                    factors(*as<StepState>(b.in[1]), task, i + r, j, seen, scratch + factors_),
                    seen);
      }
      attention_loops.sums_of_keys(pairs, scratch + scores_, score_row(),
                                   scratch + values_ + j * attention_loops.panel, rows_.length,
                                   features(), scratch + sums_, padded(), j > 0);
    }
    const std::int64_t o = rows_.offset(task, 1) + i * rows_.channels();
    float* statistics = as<float>(b.out[1]) + task * rows_.length + i;
    for (std::int64_t r = 0; r < count; ++r) {
      const Normalizer& all = normalizers[idx(r)];
      float* sums = scratch + sums_ + r * padded();
      const std::int64_t at = o + r * rows_.channels();
      copy_rows(sums, 0, 1, features(), all.factor(), false,
                is_bf16_ ? sums : as<float>(b.out[0]) + at, 0);
      statistics[r] = all.statistic();
    }
    if (is_bf16_)
      bf16_loops().round_rows(scratch + sums_, padded(), count, features(), as<Bf16>(b.out[0]) + o,
                              rows_.channels());
  }

  std::int64_t qkv_, keys_, values_, queries_, scores_, sums_, factors_, floats_;
};

class AttentionBackward : HeadKernel {
 public:
  AttentionBackward(const Attention& op, const Type& qkv) : HeadKernel(op, qkv) {
    Pieces pieces;
    qkv_ = pieces.take(copied_floats(3));
    d_qkv_ = pieces.take(copied_floats(3));
    of_o_ = pieces.take(copied_floats(1));
    keys_ = pieces.take(feature_floats(block_keys_));
    values_ = pieces.take(feature_floats(block_keys_));
    key_rows_ = pieces.take(block_keys_ * padded());
    d_keys_ = pieces.take(block_keys_ * padded());
    d_values_ = pieces.take(block_keys_ * padded());
    queries_ = pieces.take(strip_floats());
    d_o_ = pieces.take(strip_floats());
    d_queries_ = pieces.take(strip_floats());
    scores_ = pieces.take(score_floats());
    d_scores_ = pieces.take(score_floats());
    means_ = pieces.take(rows_.length);
    factors_ = pieces.take(factor_floats());
    floats_ = pieces.floats;
  }

  std::size_t workspace_bytes() const { return idx(threads_ * floats_) * sizeof(float); }

  void run(const Buffers& b) const {
    for_heads(b.workspace, floats_, [&](std::int64_t task, float* scratch) {
      const HeadRows o = floats_of(b.in[2], task, 1, scratch + d_qkv_);
      const Head head{
          .d_o = floats_of(b.in[0], task, 1, scratch + of_o_),
          .qkv = floats_of(b.in[1], task, 3, scratch + qkv_),
          .d_qkv = is_bf16_ ? scratch + d_qkv_ : as<float>(b.out[0]) + rows_.offset(task, 3)};
      for (std::int64_t i = 0; i < rows_.length; ++i)
        scratch[means_ + i] =
            dot(head.d_o.first + i * head.d_o.row, o.first + i * o.row, features());
      for (std::int64_t j = 0; j < rows_.length; j += block_keys_)
        keys_of_block(b, head, task, j, scratch);
      if (is_bf16_)
        bf16_loops().round_rows(head.d_qkv, features(), 3 * rows_.length, features(),
                                as<Bf16>(b.out[0]) + rows_.offset(task, 3), rows_.channels());
    });
  }

 private:
  struct Head {
    HeadRows d_o, qkv;
    float* d_qkv;  // in rows as those of qkv
  };

  // The gradients of keys [j, j + block_keys_) and their values, and what they add to those of the
  // queries.
  void keys_of_block(const Buffers& b, const Head& head, std::int64_t task, std::int64_t j,
                     float* scratch) const {
    const std::int64_t count = std::min(block_keys_, rows_.length - j);
    const float* k = head.qkv.first + part() + j * row();
    pack_features(k, count, scratch + keys_);
    pack_features(k + part(), count, scratch + values_);
    pack_keys(k, count, scratch + key_rows_);
    std::fill_n(scratch + d_keys_, count * padded(), 0.0F);
    std::fill_n(scratch + d_values_, count * padded(), 0.0F);
    for (std::int64_t i = rows_.causal ? j / strip_rows() * strip_rows() : 0; i < rows_.length;
         i += strip_rows())
      strip(b, head, task, i, j, count, scratch);
    float* d_k = head.d_qkv + part() + j * row();
    copy_rows(scratch + d_keys_, padded(), count, features(), 1, false, d_k, row());
    copy_rows(scratch + d_values_, padded(), count, features(), 1, false, d_k + part(), row());
  }

  void strip(const Buffers& b, const Head& head, std::int64_t task, std::int64_t i, std::int64_t j,
             std::int64_t keys, float* scratch) const {
    const AttentionLoops& loops = attention_loops;
    const std::int64_t count = std::min(strip_rows(), rows_.length - i);
    const PairBlock pairs = block(i, count, j, keys);
    const auto scale = static_cast<float>(rows_.scale());
    copy_rows(head.qkv.first + i * row(), row(), count, features(), scale, false,
              scratch + queries_, padded());
    copy_rows(head.d_o.first + i * head.d_o.row, head.d_o.row, count, features(), 1, false,
              scratch + d_o_, padded());
    loops.scores(pairs, scratch + queries_, padded(), features(), scratch + keys_,
                 scratch + scores_, score_row());
    loops.scores(pairs, scratch + d_o_, padded(), features(), scratch + values_,
                 scratch + d_scores_, score_row());
    for (std::int64_t r = 0; r < count; ++r) gradients(b, pairs, task, i, r, j, scratch);
    loops.sums_of_rows(pairs, scratch + scores_, score_row(), scratch + d_o_, padded(), features(),
                       scratch + d_values_, padded());
    loops.sums_of_rows(pairs, scratch + d_scores_, score_row(), scratch + queries_, padded(),
                       features(), scratch + d_keys_, padded());
    loops.sums_of_keys(pairs, scratch + d_scores_, score_row(), scratch + key_rows_, keys,
                       features(), scratch + d_queries_, padded(), false);
    copy_rows(scratch + d_queries_, padded(), count, features(), scale, j > 0,
              head.d_qkv + i * row(), row());
  }

  // Row r of a strip at i and of a block at j: its probabilities and the gradients of its scores.
  void gradients(const Buffers& b, const PairBlock& pairs, std::int64_t task, std::int64_t i,
                 std::int64_t r, std::int64_t j, float* scratch) const {
    float *s = scratch + scores_ + r * score_row(), *d = scratch + d_scores_ + r * score_row();
    const std::int64_t seen = pairs.visible(r), end = in_groups(seen);
    const float statistic = as<float>(b.in[3])[task * rows_.length + i + r];
    const float mean = scratch[means_ + i + r];
    if (j == 0) {
      fetch_next<0>(b.in[1], task, i + r, 3);
      fetch_next<0>(b.in[0], task, i + r, 1);
      fetch_next<0>(b.in[2], task, i + r, 1);
      fetch_next<1>(b.out[0], task, i + r, 3);
    }
    std::fill(s + seen, s + in_groups(pairs.keys), 0.0F);
    std::fill(d + seen, d + in_groups(pairs.keys), 0.0F);
    if (op_.dropout > 0) {
      dropped_gradients(s, d,
                        factors(*as<StepState>(b.in[4]), task, i + r, j, seen, scratch + factors_),
                        seen, statistic, mean);
      return;
    }
    std::fill(s + seen, s + end, unseen);
    score_gradients(s, d, end, statistic, mean);
  }

  std::int64_t qkv_, d_qkv_, of_o_, keys_, values_, key_rows_, d_keys_, d_values_, queries_, d_o_,
      d_queries_, scores_, d_scores_, means_, factors_, floats_;
};

template <class Kernel_>
std::unique_ptr<Kernel> attention_kernel(const Attention& op, const Type& qkv) {
  const auto kernel = std::make_shared<const Kernel_>(op, qkv);
  return host_kernel(
      fmt::format("strips of {} queries, {}{}", attention_loops.strip_rows, name(cpu_isa()),
                  qkv.dtype == DType::bf16 ? ", in f32" : ""),
      [kernel](const Buffers& b) { kernel->run(b); }, kernel->workspace_bytes());
}

}  // namespace

ContinuedAttention::ContinuedAttention(std::int64_t count, std::int64_t features,
                                       std::int64_t key_row)
    : count_(count),
      features_(features),
      key_row_(key_row),
      by_keys_(operand_of(Strides{key_row, 1})),
      by_features_(operand_of(Strides{1, key_row})) {
  Pieces pieces;
  // Operand::pack() may write 16 floats beyond.
  keys_ = pieces.take(most_keys * features + group);
  values_ = pieces.take(most_keys * in_panels(features));
  scores_ = pieces.take(attention_loops.strip_rows * most_score_row);
  sums_ = pieces.take(count * in_panels(features));
  normalizers_ = pieces.take(2 * count);
  floats_ = pieces.floats;
}

std::string ContinuedAttention::implementation() const {
  return fmt::format("strips of {} queries, {}", std::min(count_, attention_loops.strip_rows),
                     name(cpu_isa()));
}

void ContinuedAttention::run(const float* queries, std::int64_t first, const float* keys,
                             const float* values, float* o, float* scratch) const {
  const AttentionLoops& loops = attention_loops;
  const std::int64_t padded = in_panels(features_);
  auto* normalizers = reinterpret_cast<Normalizer*>(scratch + normalizers_);
  std::fill_n(normalizers, count_, Normalizer{});
  for (std::int64_t j = 0; j < first + count_; j += most_keys) {
    const std::int64_t block = std::min(most_keys, first + count_ - j);
    by_keys_->pack(keys + j * key_row_, {0, block}, panels_of(features_), {0, features_}, nullptr,
                   scratch + keys_);
    by_features_->pack(values + j * key_row_, {0, features_}, panels_of(block), {0, block}, nullptr,
                       scratch + values_);
    for (std::int64_t i = 0; i < count_; i += loops.strip_rows) {
      const std::int64_t rows = std::min(loops.strip_rows, count_ - i), at = first + i;
      const PairBlock pairs{rows, std::min(block, at + rows - j), j - at};
      if (pairs.keys <= 0) continue;
      float *s = scratch + scores_, *sums = scratch + sums_ + i * padded;
      loops.scores(pairs, queries + i * features_, features_, features_, scratch + keys_, s,
                   most_score_row);
      for (std::int64_t r = 0; r < rows; ++r)
        normalizers[i + r].add_block(pairs, r, s + r * most_score_row, sums + r * padded,
                                     features_);
      loops.sums_of_keys(pairs, s, most_score_row, scratch + values_, block, features_, sums,
                         padded, j > 0);
    }
  }
  for (std::int64_t i = 0; i < count_; ++i)
    copy_rows(scratch + sums_ + i * padded, 0, 1, features_, normalizers[i].factor(), false,
              o + i * features_, 0);
}

std::unique_ptr<Kernel> bind(const Attention& op, const Operands& operands) {
  return attention_kernel<AttentionForward>(op, operands.in(0).type);
}

std::unique_ptr<Kernel> bind(const AttentionGrad& op, const Operands& operands) {
  return attention_kernel<AttentionBackward>(op.attention, operands.in(1).type);
}

}  // namespace warpstep::cpu

// Batch norm and its adjoint on the CPU. Bound by memory: training reads x once for its statistics
// and once for y; inference reads it once. The adjoint reads its operands once for the sums over
// rows and once for d_x; the first pass writes the shortcut's gradient, and the second reads that
// instead of d_y and y. Figures per layer: bench/RECORDS.md.
//
// Over several ranks each exchanges two doubles a channel between the two passes, which all combine
// in the order of the ranks: all have the same bits.

#include <omp.h>

#include <array>
#include <bit>
#include <cmath>

#include "engine/core/record.h"
#include "engine/dist/communicator.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/norm/norm_rows.h"

namespace warpstep::cpu {
namespace {

// Adds x - shift and its square to the sums of each column, four rows at a time.
template <class T>
WARPSTEP_LOOP void sums_of_loop(const T* __restrict x, const float* __restrict shift,
                                float* __restrict sum, float* __restrict squares,
                                std::int64_t count, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width)
    for (std::int64_t c = 0; c < width; ++c) {
      const T* first = x + i + c;
      const float d0 = as_float(first[0]) - shift[c], d1 = as_float(first[width]) - shift[c],
                  d2 = as_float(first[2 * width]) - shift[c],
                  d3 = as_float(first[3 * width]) - shift[c];
      sum[c] += (d0 + d1) + (d2 + d3);
      squares[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  for (; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float deviation = as_float(x[i + c]) - shift[c];
      sum[c] += deviation;
      squares[c] += deviation * deviation;
    }
}
template <class T>
const auto sums_of = vectorized<sums_of_loop<T>>();

// y = (x - mean) scale + shift (+ shortcut), then the relu; `params` are mean, scale and shift.
template <class T, bool add, bool relu>
WARPSTEP_LOOP void apply(const T* __restrict x, const T* __restrict shortcut, T* __restrict y,
                         const float* __restrict params, std::int64_t count, std::int64_t width) {
  const float *mean = params, *scale = params + width, *shift = params + 2 * width;
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      float out = (as_float(x[i + c]) - mean[c]) * scale[c] + shift[c];
      if (add) out += as_float(shortcut[i + c]);
      if (relu) out = rectified(out);
      y[i + c] = rounded_to<T>(out);
    }
}

template <class T>
using Apply = void (*)(const T*, const T*, T*, const float*, std::int64_t, std::int64_t);

template <class T>
Apply<T> apply_of(const BatchNorm& op) {
  if (op.add)
    return op.relu ? vectorized<apply<T, true, true>>() : vectorized<apply<T, true, false>>();
  return op.relu ? vectorized<apply<T, false, true>>() : vectorized<apply<T, false, false>>();
}

// Copies the first `channels` of `width` columns into the others: one copy per folded row.
void repeat(float* columns, std::int64_t channels, std::int64_t width) {
  for (std::int64_t at = channels; at < width; at += channels)
    std::copy_n(columns, channels, columns + at);
}

// Two doubles a channel of each rank, in order: this rank's are exchanged for those of all.
class OfRanks {
 public:
  OfRanks(std::shared_ptr<Communicator> communicator, std::int64_t ranks, std::int64_t channels)
      : communicator_(std::move(communicator)), ranks_(ranks), channels_(channels) {}
  std::int64_t ranks() const { return ranks_; }
  std::size_t bytes() const {
    return ranks_ > 1 ? idx(ranks_ * 2 * channels_) * sizeof(double) : 0;
  }
  void set(double* memory, std::int64_t channel, double first, double second) const {
    double* own = memory + 2 * channels_ * communicator_->world().rank;
    own[channel] = first;
    own[channels_ + channel] = second;
  }
  void exchange(double* memory) const {
    static const record::Name name{"all_gather norms", record::Kind::range, true};
    const record::Span span(name);
    communicator_->all_gather(
        std::as_writable_bytes(std::span(memory, idx(ranks_ * 2 * channels_))));
  }
  // Calls visit(first, second) for each rank.
  template <class Visit>
  void for_each(const double* memory, std::int64_t channel, Visit visit) const {
    for (std::int64_t r = 0; r < ranks_; ++r)
      visit(memory[2 * r * channels_ + channel], memory[(2 * r + 1) * channels_ + channel]);
  }
  void require_job() const {
    if (ranks_ > 1) require_ranks(ranks_, communicator_);
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::int64_t ranks_, channels_;
};

// The partial sums of one chunk and one channel: deviations from `shift` and their squares.
struct ChannelSums {
  double rows, shift, sum, squares;
};

template <class T>  // of x, the shortcut and y
struct Norm {
  BatchNorm op;
  NormRows rows;
  NormWorkspace workspace;
  OfRanks of_ranks;

  // Training: the sums of each chunk, then the statistics of some channels from all chunks, over
  // several ranks of all channels together.
  void sum_chunk(const Buffers& b, const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t begin, std::int64_t end) const;
  void join_ranks(const Buffers& b) const;
  // Inference: parameters from the running statistics.
  void use_running_statistics(const Buffers& b) const;

  template <class Visit>
  void for_each_sum(const Buffers& b, std::int64_t begin, std::int64_t end, Visit visit) const;
  void set(const Buffers& b, std::int64_t c, double mean, double inv_std) const;
  void settle(const Buffers& b, std::int64_t c, double mean, double variance) const;
};

// Stores mean, scale and shift of channel c. The shift corrects the rounding of the mean.
template <class T>
void Norm<T>::set(const Buffers& b, std::int64_t c, double mean, double inv_std) const {
  const std::int64_t width = rows.width();
  float* params = workspace.params_of(b.workspace);
  const auto rounded_mean = static_cast<float>(mean);
  const double scale = static_cast<double>(as<float>(b.in[1])[c]) * inv_std;
  params[c] = rounded_mean;
  params[width + c] = static_cast<float>(scale);
  params[2 * width + c] = static_cast<float>(static_cast<double>(as<float>(b.in[2])[c]) -
                                             (mean - static_cast<double>(rounded_mean)) * scale);
}

// Stores a chunk's shift and its sums about it. The shift is the mean of up to eight of the chunk's
// rows: near enough to the chunk's mean that the squares lose little precision for any data.
template <class T>
void Norm<T>::sum_chunk(const Buffers& b, const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* shift = workspace.part_of(b.workspace, chunk.index);
  float *sum = shift + width, *squares = sum + width;
  const T* x = as<T>(b.in[0]) + chunk.offset;
  std::fill_n(shift, 3 * width, 0.0F);
  const std::int64_t sampled = std::min<std::int64_t>(8, chunk.rows);
  for (std::int64_t r = 0; r < sampled; ++r)
    for (std::int64_t c = 0; c < channels; ++c) shift[c] += as_float(x[r * channels + c]);
  for (std::int64_t c = 0; c < channels; ++c) shift[c] /= static_cast<float>(sampled);
  repeat(shift, channels, width);
  sums_of<T>(x, shift, sum, squares, chunk.rows * channels, width);
  rows.unfold(sum);
  rows.unfold(squares);
}

// Calls visit(index in the panel, sums) for channels [begin, end) of each chunk, in order.
template <class T>
template <class Visit>
void Norm<T>::for_each_sum(const Buffers& b, std::int64_t begin, std::int64_t end,
                           Visit visit) const {
  const std::int64_t width = rows.width();
  for (std::int64_t k = 0; k < rows.chunks; ++k) {
    const float* part = workspace.part_of(b.workspace, k);
    const auto chunk_rows = static_cast<double>(rows.chunk(k).rows);
    for (std::int64_t c = begin; c < end; ++c)
      visit(idx(c - begin), ChannelSums{.rows = chunk_rows,
                                        .shift = static_cast<double>(part[c]),
                                        .sum = static_cast<double>(part[width + c]),
                                        .squares = static_cast<double>(part[2 * width + c])});
  }
}

// The statistics of channels [begin, end), in double: first the means, then the variances as those
// within the chunks plus that of the chunks' means.
template <class T>
void Norm<T>::finish(const Buffers& b, std::int64_t begin, std::int64_t end) const {
  const auto total_rows = static_cast<double>(rows.rows);
  std::array<double, NormRows::panel> means{}, variances{};
  for_each_sum(b, begin, end, [&](std::size_t i, const ChannelSums& chunk) {
    means[i] += (chunk.rows * chunk.shift + chunk.sum) / total_rows;
  });
  for_each_sum(b, begin, end, [&](std::size_t i, const ChannelSums& chunk) {
    const double delta = chunk.shift + chunk.sum / chunk.rows - means[i];
    const double within = std::max(0.0, chunk.squares - chunk.sum * chunk.sum / chunk.rows);
    variances[i] += within / total_rows + chunk.rows * delta * delta / total_rows;
  });
  for (std::int64_t c = begin; c < end; ++c) {
    const double mean = means[idx(c - begin)], variance = variances[idx(c - begin)];
    if (of_ranks.ranks() > 1)
      of_ranks.set(workspace.doubles_of(b.workspace), c, mean, variance);
    else
      settle(b, c, mean, variance);
  }
}

// All ranks have as many rows.
template <class T>
void Norm<T>::join_ranks(const Buffers& b) const {
  double* memory = workspace.doubles_of(b.workspace);
  of_ranks.exchange(memory);
  const double share = 1 / static_cast<double>(of_ranks.ranks());
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    double mean = 0, variance = 0;
    of_ranks.for_each(memory, c, [&](double one, double) { mean += share * one; });
    of_ranks.for_each(memory, c, [&](double one, double within) {
      variance += share * (within + (one - mean) * (one - mean));
    });
    settle(b, c, mean, variance);
  }
}

template <class T>
void Norm<T>::settle(const Buffers& b, std::int64_t c, double mean, double variance) const {
  const auto update = [&](float& running, double statistic) {
    const auto old = static_cast<double>(running);
    running = static_cast<float>(old + op.momentum * (statistic - old));
  };
  const auto total = static_cast<double>(rows.rows * of_ranks.ranks());
  const double inv_std = 1 / std::sqrt(variance + op.epsilon);
  set(b, c, mean, inv_std);
  as<float>(b.out[1])[c] = static_cast<float>(mean);
  as<float>(b.out[2])[c] = static_cast<float>(inv_std);
  update(as<float>(b.in[3])[c], mean);
  update(as<float>(b.in[4])[c], variance * total / (total - 1));
}

template <class T>
void Norm<T>::use_running_statistics(const Buffers& b) const {
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    const auto variance = static_cast<double>(as<float>(b.in[4])[c]);
    set(b, c, static_cast<double>(as<float>(b.in[3])[c]), 1 / std::sqrt(variance + op.epsilon));
  }
}

constexpr std::int64_t large_elements = 65536;  // from here on a team is faster than one thread

// Calls body(chunk) for all chunks. The pass that writes the result goes from the end of a thread's
// share: in training it begins with what the first pass read last, and it ends with what the next
// call reads first.
using ChunkOrder = SharedTasks::Order;
template <class Body>
void for_each_chunk(const NormRows& rows, ChunkOrder order, Body body) {
  for_tasks(
      rows.chunks, rows.count() > large_elements,
      [&](std::int64_t chunk) { body(rows.chunk(chunk)); }, order);
}

template <class T>
void run(const Norm<T>& norm, Apply<T> apply, const Buffers& b) {
  const NormRows& rows = norm.rows;
  const std::int64_t channels = rows.channels, width = rows.width(), panel = NormRows::panel;
  const bool large = rows.count() > large_elements;
  if (norm.op.training) {
    norm.of_ranks.require_job();
    for_each_chunk(rows, ChunkOrder::forwards,
                   [&](const NormRows::Chunk& chunk) { norm.sum_chunk(b, chunk); });
#pragma omp parallel for schedule(static) if (large)
    for (std::int64_t c = 0; c < channels; c += panel)
      norm.finish(b, c, std::min(channels, c + panel));
    if (norm.of_ranks.ranks() > 1) norm.join_ranks(b);
  } else {
    norm.use_running_statistics(b);
  }
  float* params = norm.workspace.params_of(b.workspace);
  for (std::int64_t i = 0; i < 3; ++i) repeat(params + i * width, channels, width);
  for_each_chunk(rows, ChunkOrder::backwards, [&](const NormRows::Chunk& chunk) {
    apply(as<T>(b.in[0]) + chunk.offset, norm.op.add ? as<T>(b.in[5]) + chunk.offset : nullptr,
          as<T>(b.out[0]) + chunk.offset, params, chunk.rows * channels, width);
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNorm& op, const Operands& operands) {
  const NormRows rows(operands.in_shape(0));
  const OfRanks of_ranks(operands.context.communicator, op.training ? op.ranks : 1, rows.channels);
  return with_stored(operands.in(0).type.dtype, [&]<class T>() {
    const Norm<T> norm{op, rows, NormWorkspace(rows, op.training ? 3 : 0, 3), of_ranks};
    return host_kernel(
        op.training ? "loops, two passes" : "loops",
        [norm, apply = apply_of<T>(op)](const Buffers& b) { run(norm, apply, b); },
        norm.workspace.bytes() + of_ranks.bytes());
  });
}

// The adjoint.

namespace {

// Addresses within one chunk; d_y2, y and d_shortcut are null where the op has none.
template <class T>
struct GradOperands {
  const T *d_y, *d_y2, *y, *x;
  T *d_shortcut, *d_x;

  GradOperands at(std::int64_t offset) const {
    const auto moved = [&](auto* p) { return p ? p + offset : p; };
    return {moved(d_y), moved(d_y2), moved(y), moved(x), moved(d_shortcut), moved(d_x)};
  }
};

// g: d_y (+ d_y2), and 0 where y is at most 0. The mask works on bits, because a branch here
// would keep the compiler from vectorising the loops.
template <class T, bool sum, bool relu>
inline __attribute__((always_inline)) float gradient(const T* d_y, const T* d_y2, const T* y,
                                                     std::int64_t i) {
  const float g = sum ? as_float(d_y[i]) + as_float(d_y2[i]) : as_float(d_y[i]);
  if (!relu) return g;
  const std::uint32_t kept = as_float(y[i]) <= 0 ? 0 : ~std::uint32_t{0};
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(g) & kept);
}

// Adds g and g (x - mean) to the sums of each column; writes g as the shortcut's gradient.
template <class T, bool sum, bool relu, bool shortcut>
WARPSTEP_LOOP void gradient_sums(const T* __restrict d_y, const T* __restrict d_y2,
                                 const T* __restrict y, const T* __restrict x,
                                 const float* __restrict mean, T* __restrict d_shortcut,
                                 float* __restrict sum_g, float* __restrict sum_gx,
                                 std::int64_t count, std::int64_t width) {
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float g = gradient<T, sum, relu>(d_y, d_y2, y, i + c);
      if (shortcut) d_shortcut[i + c] = rounded_to<T>(g);
      sum_g[c] += g;
      sum_gx[c] += g * (as_float(x[i + c]) - mean[c]);
    }
}

// d_x = scale g + (slope (x - mean) + shift)
template <class T, bool sum, bool relu>
WARPSTEP_LOOP void apply_gradient(const T* __restrict d_y, const T* __restrict d_y2,
                                  const T* __restrict y, const T* __restrict x,
                                  const float* __restrict params, T* __restrict d_x,
                                  std::int64_t count, std::int64_t width) {
  const float *mean = params, *scale = params + width, *slope = params + 2 * width,
              *shift = params + 3 * width;
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float g = gradient<T, sum, relu>(d_y, d_y2, y, i + c);
      d_x[i + c] =
          rounded_to<T>(scale[c] * g + (slope[c] * (as_float(x[i + c]) - mean[c]) + shift[c]));
    }
}

template <class T>
struct Loops {
  void (*gradient_sums)(const T*, const T*, const T*, const T*, const float*, T*, float*, float*,
                        std::int64_t, std::int64_t);
  void (*apply)(const T*, const T*, const T*, const T*, const float*, T*, std::int64_t,
                std::int64_t);
};

template <class T>
Loops<T> loops_of(const BatchNormGrad& op) {
  if (op.gives_shortcut())
    return {op.sum ? vectorized<gradient_sums<T, true, true, true>>()
                   : vectorized<gradient_sums<T, false, true, true>>(),
            vectorized<apply_gradient<T, false, false>>()};
  if (op.norm.relu)
    return op.sum ? Loops<T>{vectorized<gradient_sums<T, true, true, false>>(),
                             vectorized<apply_gradient<T, true, true>>()}
                  : Loops<T>{vectorized<gradient_sums<T, false, true, false>>(),
                             vectorized<apply_gradient<T, false, true>>()};
  return op.sum ? Loops<T>{vectorized<gradient_sums<T, true, false, false>>(),
                           vectorized<apply_gradient<T, true, false>>()}
                : Loops<T>{vectorized<gradient_sums<T, false, false, false>>(),
                           vectorized<apply_gradient<T, false, false>>()};
}

template <class T>  // of images and of the results
struct NormGrad {
  BatchNormGrad op;
  NormRows rows;
  NormWorkspace workspace;
  Loops<T> loops;
  OfRanks of_ranks;

  void sum_chunk(const Buffers& b, const GradOperands<T>& operands,
                 const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t begin, std::int64_t end) const;
  void join_ranks(const Buffers& b) const;
  void settle(const Buffers& b, std::int64_t c, double sum_g, double sum_gx) const;
};

template <class T>
void NormGrad<T>::sum_chunk(const Buffers& b, const GradOperands<T>& operands,
                            const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* sum_g = workspace.part_of(b.workspace, chunk.index);
  float* sum_gx = sum_g + width;
  std::fill_n(sum_g, 2 * width, 0.0F);
  const GradOperands<T> o = operands.at(chunk.offset);
  loops.gradient_sums(o.d_y, o.d_y2, o.y, o.x, workspace.params_of(b.workspace), o.d_shortcut,
                      sum_g, sum_gx, chunk.rows * channels, width);
  rows.unfold(sum_g);
  rows.unfold(sum_gx);
}

// d_gamma and d_beta of channels [begin, end), and the coefficients of d_x, from the chunks' sums
// in order.
template <class T>
void NormGrad<T>::finish(const Buffers& b, std::int64_t begin, std::int64_t end) const {
  const std::int64_t width = rows.width();
  std::array<double, NormRows::panel> sum_g{}, sum_gx{};
  for (std::int64_t k = 0; k < rows.chunks; ++k) {
    const float* part = workspace.part_of(b.workspace, k);
    for (std::int64_t c = begin; c < end; ++c) {
      sum_g[idx(c - begin)] += static_cast<double>(part[c]);
      sum_gx[idx(c - begin)] += static_cast<double>(part[width + c]);
    }
  }
  for (std::int64_t c = begin; c < end; ++c) {
    const auto inv_std = static_cast<double>(as<float>(b.in[4])[c]);
    const double d_beta = sum_g[idx(c - begin)], product = sum_gx[idx(c - begin)];
    as<T>(b.out[1])[c] = rounded_to<T>(static_cast<float>(product * inv_std));
    as<T>(b.out[2])[c] = rounded_to<T>(static_cast<float>(d_beta));
    if (of_ranks.ranks() > 1)
      of_ranks.set(workspace.doubles_of(b.workspace), c, d_beta, product);
    else
      settle(b, c, d_beta, product);
  }
}

template <class T>
void NormGrad<T>::join_ranks(const Buffers& b) const {
  double* memory = workspace.doubles_of(b.workspace);
  of_ranks.exchange(memory);
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    double sum_g = 0, sum_gx = 0;
    of_ranks.for_each(memory, c, [&](double g, double gx) {
      sum_g += g;
      sum_gx += gx;
    });
    settle(b, c, sum_g, sum_gx);
  }
}

template <class T>
void NormGrad<T>::settle(const Buffers& b, std::int64_t c, double sum_g, double sum_gx) const {
  const std::int64_t width = rows.width();
  const auto n = static_cast<double>(rows.rows * of_ranks.ranks());
  const auto inv_std = static_cast<double>(as<float>(b.in[4])[c]);
  const double scale = static_cast<double>(as<float>(b.in[2])[c]) * inv_std;
  float* params = workspace.params_of(b.workspace);
  for (std::int64_t at = c; at < width; at += rows.channels) {
    params[width + at] = static_cast<float>(scale);
    params[2 * width + at] = static_cast<float>(-scale * inv_std * (sum_gx * inv_std) / n);
    params[3 * width + at] = static_cast<float>(-scale * sum_g / n);
  }
}

template <class T>
GradOperands<T> grad_operands(const BatchNormGrad& op, const Buffers& b) {
  return {as<T>(b.in[0]),
          op.sum ? as<T>(b.in.back()) : nullptr,
          op.norm.relu ? as<T>(b.in[5]) : nullptr,
          as<T>(b.in[1]),
          op.gives_shortcut() ? as<T>(b.out[3]) : nullptr,
          as<T>(b.out[0])};
}

template <class T>
void run(const NormGrad<T>& grad, const Buffers& b) {
  const NormRows& rows = grad.rows;
  const std::int64_t channels = rows.channels, width = rows.width(), panel = NormRows::panel;
  const bool large = rows.count() > large_elements;
  grad.of_ranks.require_job();
  GradOperands<T> operands = grad_operands<T>(grad.op, b);
  float* params = grad.workspace.params_of(b.workspace);
  for (std::int64_t c = 0; c < width; ++c) params[c] = as<float>(b.in[3])[c % channels];
  for_each_chunk(rows, ChunkOrder::forwards,
                 [&](const NormRows::Chunk& chunk) { grad.sum_chunk(b, operands, chunk); });
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t c = 0; c < channels; c += panel)
    grad.finish(b, c, std::min(channels, c + panel));
  if (grad.of_ranks.ranks() > 1) grad.join_ranks(b);
  if (grad.op.gives_shortcut()) operands.d_y = operands.d_shortcut;
  for_each_chunk(rows, ChunkOrder::backwards, [&](const NormRows::Chunk& chunk) {
    const GradOperands<T> o = operands.at(chunk.offset);
    grad.loops.apply(o.d_y, o.d_y2, o.y, o.x, params, o.d_x, chunk.rows * channels, width);
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNormGrad& op, const Operands& operands) {
  if (op.shortcut_norm) refuse_fusion(operands, fusion::norm_dgrad_norm_dgrad);
  const NormRows rows(operands.in_shape(1));
  const OfRanks of_ranks(operands.context.communicator, op.norm.ranks, rows.channels);
  return with_stored(operands.in(1).type.dtype, [&]<class T>() {
    const NormGrad<T> grad{op, rows, NormWorkspace(rows, 2, 4), loops_of<T>(op), of_ranks};
    return host_kernel(
        "loops, two passes", [grad](const Buffers& b) { run(grad, b); },
        grad.workspace.bytes() + of_ranks.bytes());
  });
}

std::unique_ptr<Kernel> bind(const NormPool&, const Operands& operands) {
  refuse_fusion(operands, fusion::norm_pool);
}

std::unique_ptr<Kernel> bind(const NormPoolGrad&, const Operands& operands) {
  refuse_fusion(operands, fusion::norm_pool);
}

}  // namespace warpstep::cpu

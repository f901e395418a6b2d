// Batch norm and its adjoint on the CPU. Bound by memory: training reads x once for its statistics
// and once for y; inference reads it once. The adjoint reads its operands once for the sums over
// rows and once for d_x; the first pass writes the shortcut's gradient, and the second reads that
// instead of d_y and y. Figures per layer: bench/RECORDS.md.

#include <array>
#include <bit>
#include <cmath>

#include "kernels/cpu/team.h"
#include "kernels/norm/norm_rows.h"

namespace warpstep::cpu {
namespace {

// Adds x - shift and its square to the sums of each column, four rows at a time.
WARPSTEP_LOOP void sums_of_loop(const float* __restrict x, const float* __restrict shift,
                                float* __restrict sum, float* __restrict squares,
                                std::int64_t count, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width)
    for (std::int64_t c = 0; c < width; ++c) {
      const float* first = x + i + c;
      const float d0 = first[0] - shift[c], d1 = first[width] - shift[c],
                  d2 = first[2 * width] - shift[c], d3 = first[3 * width] - shift[c];
      sum[c] += (d0 + d1) + (d2 + d3);
      squares[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  for (; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float deviation = x[i + c] - shift[c];
      sum[c] += deviation;
      squares[c] += deviation * deviation;
    }
}
const auto sums_of = vectorized<sums_of_loop>();

// y = (x - mean) scale + shift (+ shortcut), then the relu; `params` are mean, scale and shift.
template <bool add, bool relu>
WARPSTEP_LOOP void apply(const float* __restrict x, const float* __restrict shortcut,
                         float* __restrict y, const float* __restrict params, std::int64_t count,
                         std::int64_t width) {
  const float *mean = params, *scale = params + width, *shift = params + 2 * width;
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      float out = (x[i + c] - mean[c]) * scale[c] + shift[c];
      if (add) out += shortcut[i + c];
      if (relu) out = out > 0 ? out : 0;
      y[i + c] = out;
    }
}

using Apply = void (*)(const float*, const float*, float*, const float*, std::int64_t,
                       std::int64_t);

Apply apply_of(const BatchNorm& op) {
  if (op.add) return op.relu ? vectorized<apply<true, true>>() : vectorized<apply<true, false>>();
  return op.relu ? vectorized<apply<false, true>>() : vectorized<apply<false, false>>();
}

// Copies the first `channels` of `width` columns into the others: one copy per folded row.
void repeat(float* columns, std::int64_t channels, std::int64_t width) {
  for (std::int64_t at = channels; at < width; at += channels)
    std::copy_n(columns, channels, columns + at);
}

// The partial sums of one chunk and one channel: deviations from `shift` and their squares.
struct ChannelSums {
  double rows, shift, sum, squares;
};

struct Norm {
  BatchNorm op;
  NormRows rows;
  NormWorkspace workspace;

  // Training: the sums of each chunk, then the statistics of some channels from all chunks.
  void sum_chunk(const Buffers& b, const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t begin, std::int64_t end) const;
  // Inference: parameters from the running statistics.
  void use_running_statistics(const Buffers& b) const;

  template <class Visit>
  void for_each_sum(const Buffers& b, std::int64_t begin, std::int64_t end, Visit visit) const;
  void set(const Buffers& b, std::int64_t c, double mean, double inv_std) const;
};

// Stores mean, scale and shift of channel c. The shift corrects the rounding of the mean.
void Norm::set(const Buffers& b, std::int64_t c, double mean, double inv_std) const {
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
void Norm::sum_chunk(const Buffers& b, const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* shift = workspace.part_of(b.workspace, chunk.index);
  float *sum = shift + width, *squares = sum + width;
  const float* x = as<float>(b.in[0]) + chunk.offset;
  std::fill_n(shift, 3 * width, 0.0F);
  const std::int64_t sampled = std::min<std::int64_t>(8, chunk.rows);
  for (std::int64_t r = 0; r < sampled; ++r)
    for (std::int64_t c = 0; c < channels; ++c) shift[c] += x[r * channels + c];
  for (std::int64_t c = 0; c < channels; ++c) shift[c] /= static_cast<float>(sampled);
  repeat(shift, channels, width);
  sums_of(x, shift, sum, squares, chunk.rows * channels, width);
  rows.unfold(sum);
  rows.unfold(squares);
}

// Calls visit(index in the panel, sums) for channels [begin, end) of each chunk, in order.
template <class Visit>
void Norm::for_each_sum(const Buffers& b, std::int64_t begin, std::int64_t end, Visit visit) const {
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
void Norm::finish(const Buffers& b, std::int64_t begin, std::int64_t end) const {
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
  const auto update = [&](float& running, double statistic) {
    const auto old = static_cast<double>(running);
    running = static_cast<float>(old + op.momentum * (statistic - old));
  };
  for (std::int64_t c = begin; c < end; ++c) {
    const double mean = means[idx(c - begin)], variance = variances[idx(c - begin)];
    const double inv_std = 1 / std::sqrt(variance + op.epsilon);
    set(b, c, mean, inv_std);
    as<float>(b.out[1])[c] = static_cast<float>(mean);
    as<float>(b.out[2])[c] = static_cast<float>(inv_std);
    update(as<float>(b.in[3])[c], mean);
    update(as<float>(b.in[4])[c], variance * total_rows / (total_rows - 1));
  }
}

void Norm::use_running_statistics(const Buffers& b) const {
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    const auto variance = static_cast<double>(as<float>(b.in[4])[c]);
    set(b, c, static_cast<double>(as<float>(b.in[3])[c]), 1 / std::sqrt(variance + op.epsilon));
  }
}

constexpr std::int64_t large_elements = 65536;  // from here on a team is faster than one thread

void run(const Norm& norm, Apply apply, const Buffers& b) {
  const NormRows& rows = norm.rows;
  const std::int64_t channels = rows.channels, width = rows.width(), panel = NormRows::panel;
  const bool large = rows.count() > large_elements;
  if (norm.op.training) {
#pragma omp parallel for schedule(static) if (large)
    for (std::int64_t k = 0; k < rows.chunks; ++k) norm.sum_chunk(b, rows.chunk(k));
#pragma omp parallel for schedule(static) if (large)
    for (std::int64_t c = 0; c < channels; c += panel)
      norm.finish(b, c, std::min(channels, c + panel));
  } else {
    norm.use_running_statistics(b);
  }
  float* params = norm.workspace.params_of(b.workspace);
  for (std::int64_t i = 0; i < 3; ++i) repeat(params + i * width, channels, width);
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t k = 0; k < rows.chunks; ++k) {
    const NormRows::Chunk chunk = rows.chunk(k);
    apply(as<float>(b.in[0]) + chunk.offset,
          norm.op.add ? as<float>(b.in[5]) + chunk.offset : nullptr,
          as<float>(b.out[0]) + chunk.offset, params, chunk.rows * channels, width);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNorm& op, const Operands& operands) {
  const NormRows rows(operands.in_shape(0));
  const Norm norm{op, rows, NormWorkspace(rows, op.training ? 3 : 0, 3)};
  return host_kernel(
      op.training ? "loops, two passes" : "loops",
      [norm, apply = apply_of(op)](const Buffers& b) { run(norm, apply, b); },
      norm.workspace.bytes());
}

// The adjoint.

namespace {

// Addresses within one chunk; d_y2, y and d_shortcut are null where the op has none.
struct GradOperands {
  const float *d_y, *d_y2, *y, *x;
  float *d_shortcut, *d_x;

  GradOperands at(std::int64_t offset) const {
    const auto moved = [&](auto* p) { return p ? p + offset : p; };
    return {moved(d_y), moved(d_y2), moved(y), moved(x), moved(d_shortcut), moved(d_x)};
  }
};

// g: d_y (+ d_y2), and 0 where y is not above 0. The mask works on bits, because a branch here
// would keep the compiler from vectorising the loops.
template <bool sum, bool relu>
inline __attribute__((always_inline)) float gradient(const float* d_y, const float* d_y2,
                                                     const float* y, std::int64_t i) {
  const float g = sum ? d_y[i] + d_y2[i] : d_y[i];
  if (!relu) return g;
  const std::uint32_t kept = y[i] > 0 ? ~std::uint32_t{0} : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(g) & kept);
}

// Adds g and g (x - mean) to the sums of each column; writes g as the shortcut's gradient.
template <bool sum, bool relu, bool shortcut>
WARPSTEP_LOOP void gradient_sums(const float* __restrict d_y, const float* __restrict d_y2,
                                 const float* __restrict y, const float* __restrict x,
                                 const float* __restrict mean, float* __restrict d_shortcut,
                                 float* __restrict sum_g, float* __restrict sum_gx,
                                 std::int64_t count, std::int64_t width) {
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float g = gradient<sum, relu>(d_y, d_y2, y, i + c);
      if (shortcut) d_shortcut[i + c] = g;
      sum_g[c] += g;
      sum_gx[c] += g * (x[i + c] - mean[c]);
    }
}

// d_x = scale g + (slope (x - mean) + shift)
template <bool sum, bool relu>
WARPSTEP_LOOP void apply_gradient(const float* __restrict d_y, const float* __restrict d_y2,
                                  const float* __restrict y, const float* __restrict x,
                                  const float* __restrict params, float* __restrict d_x,
                                  std::int64_t count, std::int64_t width) {
  const float *mean = params, *scale = params + width, *slope = params + 2 * width,
              *shift = params + 3 * width;
  for (std::int64_t i = 0; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float g = gradient<sum, relu>(d_y, d_y2, y, i + c);
      d_x[i + c] = scale[c] * g + (slope[c] * (x[i + c] - mean[c]) + shift[c]);
    }
}

struct Loops {
  void (*gradient_sums)(const float*, const float*, const float*, const float*, const float*,
                        float*, float*, float*, std::int64_t, std::int64_t);
  void (*apply)(const float*, const float*, const float*, const float*, const float*, float*,
                std::int64_t, std::int64_t);
};

Loops loops_of(const BatchNormGrad& op) {
  if (op.gives_shortcut())
    return {op.sum ? vectorized<gradient_sums<true, true, true>>()
                   : vectorized<gradient_sums<false, true, true>>(),
            vectorized<apply_gradient<false, false>>()};
  if (op.norm.relu)
    return op.sum ? Loops{vectorized<gradient_sums<true, true, false>>(),
                          vectorized<apply_gradient<true, true>>()}
                  : Loops{vectorized<gradient_sums<false, true, false>>(),
                          vectorized<apply_gradient<false, true>>()};
  return op.sum ? Loops{vectorized<gradient_sums<true, false, false>>(),
                        vectorized<apply_gradient<true, false>>()}
                : Loops{vectorized<gradient_sums<false, false, false>>(),
                        vectorized<apply_gradient<false, false>>()};
}

struct NormGrad {
  BatchNormGrad op;
  NormRows rows;
  NormWorkspace workspace;
  Loops loops;

  void sum_chunk(const Buffers& b, const GradOperands& operands,
                 const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t begin, std::int64_t end) const;
};

void NormGrad::sum_chunk(const Buffers& b, const GradOperands& operands,
                         const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* sum_g = workspace.part_of(b.workspace, chunk.index);
  float* sum_gx = sum_g + width;
  std::fill_n(sum_g, 2 * width, 0.0F);
  const GradOperands o = operands.at(chunk.offset);
  loops.gradient_sums(o.d_y, o.d_y2, o.y, o.x, workspace.params_of(b.workspace), o.d_shortcut,
                      sum_g, sum_gx, chunk.rows * channels, width);
  rows.unfold(sum_g);
  rows.unfold(sum_gx);
}

// d_gamma and d_beta of channels [begin, end), and the coefficients of d_x, from the chunks' sums
// in order.
void NormGrad::finish(const Buffers& b, std::int64_t begin, std::int64_t end) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  const auto n = static_cast<double>(rows.rows);
  std::array<double, NormRows::panel> sum_g{}, sum_gx{};
  for (std::int64_t k = 0; k < rows.chunks; ++k) {
    const float* part = workspace.part_of(b.workspace, k);
    for (std::int64_t c = begin; c < end; ++c) {
      sum_g[idx(c - begin)] += static_cast<double>(part[c]);
      sum_gx[idx(c - begin)] += static_cast<double>(part[width + c]);
    }
  }
  float* params = workspace.params_of(b.workspace);
  for (std::int64_t c = begin; c < end; ++c) {
    const auto inv_std = static_cast<double>(as<float>(b.in[4])[c]);
    const double d_beta = sum_g[idx(c - begin)], d_gamma = sum_gx[idx(c - begin)] * inv_std;
    const double scale = static_cast<double>(as<float>(b.in[2])[c]) * inv_std;
    as<float>(b.out[1])[c] = static_cast<float>(d_gamma);
    as<float>(b.out[2])[c] = static_cast<float>(d_beta);
    for (std::int64_t at = c; at < width; at += channels) {
      params[width + at] = static_cast<float>(scale);
      params[2 * width + at] = static_cast<float>(-scale * inv_std * d_gamma / n);
      params[3 * width + at] = static_cast<float>(-scale * d_beta / n);
    }
  }
}

GradOperands grad_operands(const BatchNormGrad& op, const Buffers& b) {
  return {as<float>(b.in[0]),
          op.sum ? as<float>(b.in.back()) : nullptr,
          op.norm.relu ? as<float>(b.in[5]) : nullptr,
          as<float>(b.in[1]),
          op.gives_shortcut() ? as<float>(b.out[3]) : nullptr,
          as<float>(b.out[0])};
}

void run(const NormGrad& grad, const Buffers& b) {
  const NormRows& rows = grad.rows;
  const std::int64_t channels = rows.channels, width = rows.width(), panel = NormRows::panel;
  const bool large = rows.count() > large_elements;
  GradOperands operands = grad_operands(grad.op, b);
  float* params = grad.workspace.params_of(b.workspace);
  for (std::int64_t c = 0; c < width; ++c) params[c] = as<float>(b.in[3])[c % channels];
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t k = 0; k < rows.chunks; ++k) grad.sum_chunk(b, operands, rows.chunk(k));
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t c = 0; c < channels; c += panel)
    grad.finish(b, c, std::min(channels, c + panel));
  if (grad.op.gives_shortcut()) operands.d_y = operands.d_shortcut;
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t k = 0; k < rows.chunks; ++k) {
    const NormRows::Chunk chunk = rows.chunk(k);
    const GradOperands o = operands.at(chunk.offset);
    grad.loops.apply(o.d_y, o.d_y2, o.y, o.x, params, o.d_x, chunk.rows * channels, width);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNormGrad& op, const Operands& operands) {
  const NormRows rows(operands.in_shape(1));
  const NormGrad grad{op, rows, NormWorkspace(rows, 2, 4), loops_of(op)};
  return host_kernel(
      "loops, two passes", [grad](const Buffers& b) { run(grad, b); }, grad.workspace.bytes());
}

}  // namespace warpstep::cpu

// Batch normalisation in both layouts. Bound by memory: in training x is read once for its
// statistics and once for y; inference reads it once.

#include <array>
#include <bit>
#include <cmath>

#include "kernels/cpu/team.h"
#include "kernels/norm/norm_rows.h"

namespace warpstep::cpu {
namespace {

// Sums of x - shift and of its square, column by column.
WARPSTEP_LOOP void sums_of_loop(const float* __restrict x, const float* __restrict shift,
                                float* __restrict sum, float* __restrict squares,
                                std::int64_t count, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + 4 * width <= count; i += 4 * width)
    for (std::int64_t c = 0; c < width; ++c) {
      const float* at = x + i + c;
      const float a = at[0] - shift[c], b = at[width] - shift[c], d = at[2 * width] - shift[c],
                  e = at[3 * width] - shift[c];
      sum[c] += (a + b) + (d + e);
      squares[c] += (a * a + b * b) + (d * d + e * e);
    }
  for (; i < count; i += width)
    for (std::int64_t c = 0, n = std::min(width, count - i); c < n; ++c) {
      const float a = x[i + c] - shift[c];
      sum[c] += a;
      squares[c] += a * a;
    }
}
const auto sums_of = vectorized<sums_of_loop>();

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

// The first `channels` of `width` columns, again in the others.
void repeat(float* columns, std::int64_t channels, std::int64_t width) {
  for (std::int64_t at = channels; at < width; at += channels)
    std::copy_n(columns, channels, columns + at);
}

struct Norm {
  BatchNorm op;
  NormRows rows;
  NormWorkspace workspace;

  void parameters_from(const Buffers& b, std::int64_t group) const;
  void statistics(const Buffers& b, const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t group, std::int64_t begin, std::int64_t end) const;
  void set(const Buffers& b, std::int64_t group, std::int64_t c, double mean, double inv_std) const;
};

// Mean, scale and shift of channel c of a group: y = (x - mean) scale + shift. What rounding takes
// from the mean goes into the shift.
void Norm::set(const Buffers& b, std::int64_t group, std::int64_t c, double mean,
               double inv_std) const {
  const std::int64_t width = rows.width(), channel = group * rows.channels + c;
  float* params = workspace.params_of(b.workspace, group);
  const auto rounded_mean = static_cast<float>(mean);
  const double scale = static_cast<double>(as<float>(b.in[1])[channel]) * inv_std;
  params[c] = rounded_mean;
  params[width + c] = static_cast<float>(scale);
  params[2 * width + c] = static_cast<float>(static_cast<double>(as<float>(b.in[2])[channel]) -
                                             (mean - static_cast<double>(rounded_mean)) * scale);
}

// Of one chunk: a shift near its mean, and the sums about it. As the shift is the mean of some of
// the chunk's own rows, it lies so near that little is lost in the squares, whatever the numbers.
void Norm::statistics(const Buffers& b, const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* shift = workspace.part_of(b.workspace, chunk.task);
  float *sum = shift + width, *squares = sum + width;
  const float* x = as<float>(b.in[0]) + chunk.offset;
  std::fill_n(shift, 3 * width, 0.0F);
  const std::int64_t some = std::min<std::int64_t>(8, chunk.rows);
  for (std::int64_t r = 0; r < some; ++r)
    for (std::int64_t c = 0; c < channels; ++c) shift[c] += x[r * channels + c];
  for (std::int64_t c = 0; c < channels; ++c) shift[c] /= static_cast<float>(some);
  repeat(shift, channels, width);
  for (std::int64_t r = 0; r < chunk.runs; ++r)
    sums_of(x + r * rows.run_stride(), shift, sum, squares, chunk.rows * channels, width);
  rows.unfold(sum);
  rows.unfold(squares);
}

// The statistics of channels [begin, end) of a group from its chunks', in a fixed order.
void Norm::finish(const Buffers& b, std::int64_t group, std::int64_t begin,
                  std::int64_t end) const {
  const std::int64_t width = rows.width(), chunks = rows.chunks();
  const auto n = static_cast<double>(rows.runs * rows.run);
  std::array<double, NormRows::panel> mean{}, variance{};
  const auto each = [&](auto visit) {
    for (std::int64_t k = 0; k < chunks; ++k) {
      const NormRows::Chunk chunk = rows.chunk_of(group, k);
      const float* part = workspace.part_of(b.workspace, chunk.task);
      const auto m = static_cast<double>(chunk.runs * chunk.rows);
      for (std::int64_t c = begin; c < end; ++c)
        visit(idx(c - begin), m, static_cast<double>(part[c]), static_cast<double>(part[width + c]),
              static_cast<double>(part[2 * width + c]));
    }
  };
  each([&](std::size_t c, double m, double shift, double sum, double) {
    mean[c] += (m * shift + sum) / n;
  });
  each([&](std::size_t c, double m, double shift, double sum, double squares) {
    const double d = shift + sum / m - mean[c];
    variance[c] += std::max(0.0, squares - sum * sum / m) / n + m * d * d / n;
  });
  for (std::int64_t c = begin; c < end; ++c) {
    const std::int64_t channel = group * rows.channels + c;
    const double mu = mean[idx(c - begin)], var = variance[idx(c - begin)];
    const double inv_std = 1 / std::sqrt(var + op.epsilon);
    set(b, group, c, mu, inv_std);
    as<float>(b.out[1])[channel] = static_cast<float>(mu);
    as<float>(b.out[2])[channel] = static_cast<float>(inv_std);
    const auto move = [&](float& running, double statistic) {
      const auto old = static_cast<double>(running);
      running = static_cast<float>(old + op.momentum * (statistic - old));
    };
    move(as<float>(b.in[3])[channel], mu);
    move(as<float>(b.in[4])[channel], var * n / (n - 1));
  }
}

void Norm::parameters_from(const Buffers& b, std::int64_t group) const {
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    const std::int64_t channel = group * rows.channels + c;
    const auto variance = static_cast<double>(as<float>(b.in[4])[channel]);
    set(b, group, c, static_cast<double>(as<float>(b.in[3])[channel]),
        1 / std::sqrt(variance + op.epsilon));
  }
}

void run(const Norm& norm, Apply apply, const Buffers& b) {
  const NormRows& rows = norm.rows;
  const std::int64_t tasks = rows.tasks(), channels = rows.channels, width = rows.width();
  const std::int64_t panel = NormRows::panel, panels = rows.panels();
  const bool large = rows.count() > 65536;
  if (norm.op.training) {
#pragma omp parallel for schedule(static) if (large)
    for (std::int64_t t = 0; t < tasks; ++t) norm.statistics(b, rows.at(t));
#pragma omp parallel for schedule(static) if (large)
    for (std::int64_t p = 0; p < rows.groups * panels; ++p) {
      const std::int64_t begin = p % panels * panel;
      norm.finish(b, p / panels, begin, std::min(channels, begin + panel));
    }
  }
  for (std::int64_t g = 0; g < rows.groups; ++g) {
    if (!norm.op.training) norm.parameters_from(b, g);
    float* params = norm.workspace.params_of(b.workspace, g);
    for (std::int64_t i = 0; i < 3; ++i) repeat(params + i * width, channels, width);
  }
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t t = 0; t < tasks; ++t) {
    const NormRows::Chunk chunk = rows.at(t);
    const float* params = norm.workspace.params_of(b.workspace, chunk.group);
    for (std::int64_t r = 0; r < chunk.runs; ++r) {
      const std::int64_t at = chunk.offset + r * rows.run_stride();
      apply(as<float>(b.in[0]) + at, norm.op.add ? as<float>(b.in[5]) + at : nullptr,
            as<float>(b.out[0]) + at, params, chunk.rows * channels, width);
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNorm& op, const Operands& operands) {
  const NormRows rows(operands.in(0), operands.context.block);
  const Norm norm{op, rows, NormWorkspace(rows, op.training ? 3 : 0, 3)};
  return host_kernel(
      op.training ? "loops, two passes" : "loops",
      [norm, apply = apply_of(op)](const Buffers& b) { run(norm, apply, b); },
      norm.workspace.bytes());
}

// Batch norm's adjoint in both layouts. Bound by memory: its operands are read once for the sums
// over rows and once for d_x; the shortcut's gradient is written in the first pass and read in the
// second instead of what made it.

namespace {

// Of one run; d_y2 and y where the op has them.
struct Operand {
  const float *d_y, *d_y2, *y, *x;
  float *d_shortcut, *d_x;

  Operand behind(std::int64_t offset) const {
    const auto moved = [&](auto* p) { return p ? p + offset : p; };
    return {moved(d_y), moved(d_y2), moved(y), moved(x), moved(d_shortcut), moved(d_x)};
  }
};

// 0 where y is not above 0, by its bits: a branch here would keep the loops from vector registers.
template <bool sum, bool relu>
inline __attribute__((always_inline)) float gradient(const float* d_y, const float* d_y2,
                                                     const float* y, std::int64_t i) {
  const float g = sum ? d_y[i] + d_y2[i] : d_y[i];
  if (!relu) return g;
  const std::uint32_t kept = y[i] > 0 ? ~std::uint32_t{0} : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(g) & kept);
}

// Sums of g and of g (x - mean), column by column; gives g where the shortcut wants it.
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

  void sums(const Buffers& b, const Operand& operand, const NormRows::Chunk& chunk) const;
  void finish(const Buffers& b, std::int64_t group, std::int64_t begin, std::int64_t end) const;
};

void NormGrad::sums(const Buffers& b, const Operand& operand, const NormRows::Chunk& chunk) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  float* sum_g = workspace.part_of(b.workspace, chunk.task);
  float* sum_gx = sum_g + width;
  std::fill_n(sum_g, 2 * width, 0.0F);
  for (std::int64_t r = 0; r < chunk.runs; ++r) {
    const Operand o = operand.behind(chunk.offset + r * rows.run_stride());
    loops.gradient_sums(o.d_y, o.d_y2, o.y, o.x, workspace.params_of(b.workspace, chunk.group),
                        o.d_shortcut, sum_g, sum_gx, chunk.rows * channels, width);
  }
  rows.unfold(sum_g);
  rows.unfold(sum_gx);
}

// d_gamma and d_beta of channels [begin, end) of a group from its chunks' sums, in a fixed order,
// and what d_x is made with.
void NormGrad::finish(const Buffers& b, std::int64_t group, std::int64_t begin,
                      std::int64_t end) const {
  const std::int64_t width = rows.width(), channels = rows.channels;
  const auto n = static_cast<double>(rows.runs * rows.run);
  std::array<double, NormRows::panel> sum_g{}, sum_gx{};
  for (std::int64_t k = 0; k < rows.chunks(); ++k) {
    const float* part = workspace.part_of(b.workspace, rows.chunk_of(group, k).task);
    for (std::int64_t c = begin; c < end; ++c) {
      sum_g[idx(c - begin)] += static_cast<double>(part[c]);
      sum_gx[idx(c - begin)] += static_cast<double>(part[width + c]);
    }
  }
  float* params = workspace.params_of(b.workspace, group);
  for (std::int64_t c = begin; c < end; ++c) {
    const std::int64_t channel = group * channels + c;
    const auto inv_std = static_cast<double>(as<float>(b.in[4])[channel]);
    const double d_beta = sum_g[idx(c - begin)], d_gamma = sum_gx[idx(c - begin)] * inv_std;
    const double scale = static_cast<double>(as<float>(b.in[2])[channel]) * inv_std;
    as<float>(b.out[1])[channel] = static_cast<float>(d_gamma);
    as<float>(b.out[2])[channel] = static_cast<float>(d_beta);
    for (std::int64_t at = c; at < width; at += channels) {
      params[width + at] = static_cast<float>(scale);
      params[2 * width + at] = static_cast<float>(-scale * inv_std * d_gamma / n);
      params[3 * width + at] = static_cast<float>(-scale * d_beta / n);
    }
  }
}

Operand operand_of(const BatchNormGrad& op, const Buffers& b) {
  return {as<float>(b.in[0]),
          op.sum ? as<float>(b.in.back()) : nullptr,
          op.norm.relu ? as<float>(b.in[5]) : nullptr,
          as<float>(b.in[1]),
          op.gives_shortcut() ? as<float>(b.out[3]) : nullptr,
          as<float>(b.out[0])};
}

void run(const NormGrad& grad, const Buffers& b) {
  const NormRows& rows = grad.rows;
  const std::int64_t tasks = rows.tasks(), width = rows.width();
  const bool large = rows.count() > 65536;
  Operand operand = operand_of(grad.op, b);
  for (std::int64_t g = 0; g < rows.groups; ++g)
    for (std::int64_t c = 0; c < width; ++c)
      grad.workspace.params_of(b.workspace, g)[c] =
          as<float>(b.in[3])[g * rows.channels + c % rows.channels];
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t t = 0; t < tasks; ++t) grad.sums(b, operand, rows.at(t));
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t p = 0; p < rows.groups * rows.panels(); ++p) {
    const std::int64_t begin = p % rows.panels() * NormRows::panel;
    grad.finish(b, p / rows.panels(), begin, std::min(rows.channels, begin + NormRows::panel));
  }
  if (grad.op.gives_shortcut()) operand.d_y = operand.d_shortcut;
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t t = 0; t < tasks; ++t) {
    const NormRows::Chunk chunk = rows.at(t);
    for (std::int64_t r = 0; r < chunk.runs; ++r) {
      const Operand o = operand.behind(chunk.offset + r * rows.run_stride());
      grad.loops.apply(o.d_y, o.d_y2, o.y, o.x, grad.workspace.params_of(b.workspace, chunk.group),
                       o.d_x, chunk.rows * rows.channels, width);
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const BatchNormGrad& op, const Operands& operands) {
  const NormRows rows(operands.in(1), operands.context.block);
  const NormGrad grad{op, rows, NormWorkspace(rows, 2, 4), loops_of(op)};
  return host_kernel(
      "loops, two passes", [grad](const Buffers& b) { run(grad, b); }, grad.workspace.bytes());
}

}  // namespace warpstep::cpu

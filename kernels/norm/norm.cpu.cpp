// Batch normalisation in both layouts. Bound by memory: in training x is read once for its
// statistics and once for y; inference reads it once.
#include <array>
#include <cmath>

#include "kernels/cpu/simd.h"
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

}  // namespace warpstep::cpu

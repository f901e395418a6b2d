// Batch norm's adjoint in both layouts. Bound by memory: its operands are read once for the sums
// over rows and once for d_x; the shortcut's gradient is written in the first pass and read in the
// second instead of what made it.
#include <array>
#include <bit>

#include "kernels/cpu/simd.h"
#include "kernels/norm/norm_rows.h"

namespace warpstep::cpu {
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

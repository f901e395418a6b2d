// What stands beside the update: norm, sums over steps, LARS, the average of the weights. Bound by
// memory. Sums run over chunks, which are added in order: the same bits from any team.
#include <algorithm>
#include <cmath>

#include "engine/store.h"
#include "kernels/cpu/chunks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/update/gradients.h"

namespace warpstep::cpu {
namespace {

WARPSTEP_LOOP double squares_of_loop(const float* x, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  double sums[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l)
      sums[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t i = whole; i < count; ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}
const auto squares_of = vectorized<squares_of_loop>();

// `partial` has an element a chunk. Not finite where an element is not: the squares of f32 do not
// overflow in double.
double squares(const float* x, std::int64_t count, double* partial) {
  for_chunks(count, [&](std::int64_t i, std::int64_t end) {
    partial[i / chunk_elements] = squares_of(x + i, end - i);
  });
  double sum = 0;
  for (std::int64_t c = 0; c < chunks(count); ++c) sum += partial[c];
  return sum;
}

WARPSTEP_LOOP void accumulate_loop(float* __restrict sum, const float* __restrict gradient,
                                   float keep, float share, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = keep * sum[i] + share * gradient[i];
}
const auto accumulate = vectorized<accumulate_loop>();

WARPSTEP_LOOP void scale_loop(float* __restrict gradient, const float* __restrict parameter,
                              float factor, float decay, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    gradient[i] = factor * (gradient[i] + decay * parameter[i]);
}
const auto scale = vectorized<scale_loop>();

}  // namespace

std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  const std::int64_t count = section_elements(operands.graph);
  return host_kernel(
      "loops",
      [op, count](const Buffers& b) {
        const double sum = squares(as<float>(b.in[1]), count, as<double>(b.workspace));
        settle_norm(*as<StepState>(b.in[0]), sum, std::isfinite(sum), op.clip_norm);
      },
      idx(chunks(count)) * sizeof(double));
}

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands& operands) {
  return host_kernel("loops", [op, count = section_elements(operands.graph)](const Buffers& b) {
    const bool first = as<StepState>(b.in[0])->micro_step == 0;
    const float *gradient = as<float>(b.in[1]),
                share = static_cast<float>(1.0 / static_cast<double>(op.steps));
    float* sum = as<float>(b.in[2]);
    for_chunks(count, [&](std::int64_t i, std::int64_t end) {
      const std::int64_t n = end - i;
      if (first) std::fill_n(sum + i, n, 0.0F);  // what it held may be infinite
      accumulate(sum + i, gradient + i, 1, share, n);
    });
  });
}

std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands& operands) {
  const std::vector<std::size_t> scaled = lars_inputs(operands.graph, operands.node);
  std::vector<std::int64_t> counts(operands.node.in.size());
  std::int64_t most = 0;
  for (const std::size_t p : scaled) {
    counts[p] =
        static_cast<std::int64_t>(operands.in(static_cast<int>(p)).layout.bytes / sizeof(float));
    most = std::max(most, counts[p]);
  }
  return host_kernel(
      "loops",
      [op, scaled, counts](const Buffers& b) {
        const auto& state = *as<StepState>(b.in[0]);
        if (!updates(state)) return;
        auto* partial = as<double>(b.workspace);
        for (const std::size_t p : scaled) {
          const float* w = as<float>(b.in[p]);
          float* g = as<float>(b.in[p + 1]);
          const double w_squares = squares(w, counts[p], partial);
          const LarsFactor f = lars_factor(op, state, w_squares, squares(g, counts[p], partial));
          if (f.factor == 0) continue;
          for_chunks(counts[p], [&](std::int64_t i, std::int64_t end) {
            const std::int64_t n = end - i;
            scale(g + i, w + i, static_cast<float>(f.factor), static_cast<float>(f.decay), n);
          });
        }
      },
      idx(chunks(most)) * sizeof(double));
}

std::unique_ptr<Kernel> bind(const Average& op, const Operands& operands) {
  return host_kernel("loops", [op, count = section_elements(operands.graph)](const Buffers& b) {
    if (!updates(*as<StepState>(b.in[0]))) return;
    const float* parameter = as<float>(b.in[1]);
    float* average = as<float>(b.in[2]);
    for_chunks(count, [&](std::int64_t i, std::int64_t end) {
      const std::int64_t n = end - i;
      accumulate(average + i, parameter + i, static_cast<float>(op.decay),
                 static_cast<float>(1 - op.decay), n);
    });
  });
}

}  // namespace warpstep::cpu

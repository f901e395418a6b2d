// Attention in double, one row of probabilities at a time.
#include <algorithm>
#include <vector>

#include "engine/core/random.h"
#include "engine/graph/step_state.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

using Doubles = std::vector<double>;

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

// The factors of row `row` of [tasks * T] rows of probabilities: 0 where dropped, else 1 / (1 -
// dropout); 1 without dropout.
Doubles dropout_factors(const Attention& op, const AttentionRows& rows, const void* state,
                        std::int64_t row) {
  Doubles factors(idx(op.sequence), 1.0);
  if (op.dropout == 0) return factors;
  const auto& now = *static_cast<const StepState*>(state);
  const std::uint64_t first = first_draw(now, rows.pairs());
  for (std::int64_t j = 0; j < op.sequence; ++j) {
    const std::uint64_t at = first + static_cast<std::uint64_t>(row * op.sequence + j);
    const std::uint32_t word = draw(now.seed, Purpose::dropout, op.layer, at / 4)[at % 4];
    factors[idx(j)] = static_cast<double>(uniform(word)) >= op.dropout ? 1 / (1 - op.dropout) : 0;
  }
  return factors;
}

struct AttentionLoops {
  Attention op;
  AttentionRows rows;

  AttentionLoops(const Attention& attention, const Shape& qkv)
      : op(attention), rows(attention, qkv) {}

  std::int64_t row() const { return 3 * rows.channels(); }

  // Scores of a query with the keys it sees.
  Doubles scores(const double* q, const double* k, std::int64_t visible) const {
    Doubles s(idx(visible));
    for (std::int64_t j = 0; j < visible; ++j)
      s[idx(j)] = dot(q, k + j * row(), rows.features) * rows.scale();
    return s;
  }

  void forward(const Buffers& b) const {
    const std::int64_t channels = rows.channels();
    for (std::int64_t task = 0; task < rows.tasks(); ++task)
      for (std::int64_t i = 0; i < rows.length; ++i) {
        const double* q = as<double>(b.in[0]) + rows.offset(task, 3);
        const double *k = q + channels, *v = k + channels;
        Doubles p = scores(q + i * row(), k, rows.visible(i));
        const double most = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& each : p) sum += each = std::exp(each - most);
        as<double>(b.out[1])[task * rows.length + i] = most + std::log(sum);
        const Doubles factors =
            dropout_factors(op, rows, op.dropout > 0 ? b.in[1] : nullptr, task * rows.length + i);
        double* o = as<double>(b.out[0]) + rows.offset(task, 1) + i * channels;
        std::fill_n(o, rows.features, 0.0);
        for (std::size_t j = 0; j < p.size(); ++j)
          for (std::int64_t d = 0; d < rows.features; ++d)
            o[d] += p[j] / sum * factors[j] * v[static_cast<std::int64_t>(j) * row() + d];
      }
  }

  void backward(const Buffers& b) const {
    const std::int64_t channels = rows.channels();
    std::fill_n(as<double>(b.out[0]), rows.sequences * rows.length * row(), 0.0);
    for (std::int64_t task = 0; task < rows.tasks(); ++task)
      for (std::int64_t i = 0; i < rows.length; ++i) {
        const double* q = as<double>(b.in[1]) + rows.offset(task, 3);
        const double *k = q + channels, *v = k + channels;
        const std::int64_t at = rows.offset(task, 1) + i * channels;
        const double *d_o = as<double>(b.in[0]) + at, *o = as<double>(b.in[2]) + at;
        double* d_q = as<double>(b.out[0]) + rows.offset(task, 3);
        double *d_k = d_q + channels, *d_v = d_k + channels;
        const double statistic = as<double>(b.in[3])[task * rows.length + i];
        const Doubles s = scores(q + i * row(), k, rows.visible(i));
        const Doubles factors =
            dropout_factors(op, rows, op.dropout > 0 ? b.in[4] : nullptr, task * rows.length + i);
        const double mean = dot(d_o, o, rows.features);
        for (std::int64_t j = 0; j < rows.visible(i); ++j) {
          const double p = std::exp(s[idx(j)] - statistic);
          const double d_p = factors[idx(j)] * dot(d_o, v + j * row(), rows.features);
          const double d_s = p * (d_p - mean) * rows.scale();
          for (std::int64_t d = 0; d < rows.features; ++d) {
            d_v[j * row() + d] += p * factors[idx(j)] * d_o[d];
            d_q[i * row() + d] += d_s * k[j * row() + d];
            d_k[j * row() + d] += d_s * q[i * row() + d];
          }
        }
      }
  }
};

}  // namespace

std::unique_ptr<Kernel> bind(const Attention& op, const Operands& operands) {
  return host_kernel("loops", [loops = AttentionLoops(op, operands.in_shape(0))](const Buffers& b) {
    loops.forward(b);
  });
}

std::unique_ptr<Kernel> bind(const AttentionGrad& op, const Operands& operands) {
  return host_kernel("loops", [loops = AttentionLoops(op.attention, operands.in_shape(1))](
                                  const Buffers& b) { loops.backward(b); });
}

}  // namespace warpstep::ref

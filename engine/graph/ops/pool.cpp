#include "engine/graph/ops/pool.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

// Output shape of pooling x [N,H,W,C]; window >= 1. Throws ShapeError.
template <class Pool>
Shape pooled(const Pool& op, const Shape& x) {
  if (x[1] + 2 * op.padding < op.window || x[2] + 2 * op.padding < op.window)
    fail<ShapeError>(
        "a {0}x{0} window does not fit images of {1}x{2}; they are pooled too often for their size",
        op.window, x[1], x[2]);
  const auto extent = [&](std::int64_t n) {
    return (n + 2 * op.padding - op.window) / op.stride + 1;
  };
  return {x[0], extent(x[1]), extent(x[2]), x[3]};
}

}  // namespace

Types infer(const MaxPool& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  const Shape& x = in[0].shape;
  if (x.rank() != 4) fail<ShapeError>("max_pool takes images [N,H,W,C], not {}", in[0].text());
  if (op.window < 1 || op.window > 15 || op.stride < 1 || op.padding < 0 ||
      2 * op.padding > op.window)
    fail<ShapeError>(
        "max_pool {}: window must be 1 to 15, stride at least 1, and padding (p) from 0 to half of "
        "the window",
        text(op));
  const Shape y = pooled(op, x);
  return {{in[0].dtype, y}, {DType::u8, y}};
}

void grad(const MaxPool& op, Adjoint& adjoint) {
  const MaxPoolGrad d{.pool = op, .input = adjoint.in(0).type().shape};
  adjoint.give(0, adjoint.record(Phase::data_grad, d, {adjoint.d_out(), adjoint.out(1)})[0]);
}

Cost cost(const MaxPool& op, const Types& in, const Types& out) {
  const double taps = static_cast<double>(op.window * op.window);
  return {taps * static_cast<double>(out[0].shape.count()), bytes_of(in) + bytes_of(out), 1};
}

std::string text(const MaxPool& op) {
  std::string s = fmt::format("{0}x{0} s{1}", op.window, op.stride);
  if (op.padding != 0) s += fmt::format(" p{}", op.padding);
  if (op.relu) s += " +relu";
  return s;
}

Types infer(const MaxPoolGrad& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  Types out{{in[0].dtype, op.input}};
  if (op.bias_gradient) out.push_back({in[0].dtype, {op.input.back()}});
  return out;
}

Cost cost(const MaxPoolGrad& op, const Types& in, const Types& out) {
  const std::int64_t overlap = (op.pool.window + op.pool.stride - 1) / op.pool.stride;
  Cost cost{static_cast<double>(in[0].shape.count()), bytes_of(in) + bytes_of(out),
            static_cast<double>(overlap * overlap)};
  if (op.bias_gradient) add_column_sums(cost, op.input);
  return cost;
}

std::string text(const MaxPoolGrad& op) {
  return text(op.pool) + (op.bias_gradient ? " +bias" : "");
}

Types infer(const AvgPool& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  const Shape& x = in[0].shape;
  if (x.rank() != 4) fail<ShapeError>("avg_pool takes images [N,H,W,C], not {}", in[0].text());
  if (op.window == 0) return {{in[0].dtype, {x[0], 1, 1, x[3]}}};
  if (op.window < 0 || op.stride < 1 || op.padding < 0 || 2 * op.padding > op.window)
    fail<ShapeError>(
        "avg_pool {}: window must be at least 1 (0: the whole image), stride at least 1, and "
        "padding (p) from 0 to half of the window",
        text(op));
  return {{in[0].dtype, pooled(op, x)}};
}

void grad(const AvgPool& op, Adjoint& adjoint) {
  const AvgPoolGrad d{.pool = op, .input = adjoint.in(0).type().shape};
  adjoint.give(0, adjoint.record(Phase::data_grad, d, {adjoint.d_out()})[0]);
}

Cost cost(const AvgPool& op, const Types& in, const Types& out) {
  const Shape& x = in[0].shape;
  const double taps = static_cast<double>(op.window == 0 ? x[1] * x[2] : op.window * op.window);
  return {taps * static_cast<double>(out[0].shape.count()), bytes_of(in) + bytes_of(out), taps};
}

std::string text(const AvgPool& op) {
  if (op.window == 0) return "global";
  return fmt::format("{0}x{0} s{1}", op.window, op.stride) +
         (op.padding != 0 ? fmt::format(" p{}", op.padding) : "");
}

Types infer(const AvgPoolGrad& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {{in[0].dtype, op.input}};
}

Cost cost(const AvgPoolGrad& op, const Types& in, const Types& out) {
  const std::int64_t overlap =
      op.pool.window == 0 ? 1 : (op.pool.window + op.pool.stride - 1) / op.pool.stride;
  const double depth = static_cast<double>(overlap * overlap);
  return {depth * static_cast<double>(op.input.count()), bytes_of(in) + bytes_of(out), depth};
}

std::string text(const AvgPoolGrad& op) {
  return text(op.pool);
}

}  // namespace warpstep

#include "engine/graph/ops/layer_norm.h"

#include <cmath>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

void require_channels(std::string_view op, const Types& in, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i <= last; ++i)
    if (in[i] != Type{DType::f32, {in[0].shape.back()}})
      fail<ShapeError>("{} of {} needs f32 {} as operand {}, got {}", op, in[0].text(),
                       in[0].shape.back(), i, in[i].text());
}

std::string join(bool first, std::string_view a, bool second, std::string_view b) {
  return fmt::format("{}{}{}", first ? a : "", first && second ? " " : "", second ? b : "");
}

}  // namespace

Types infer(const LayerNorm& op, const Types& in) {
  const std::size_t inputs = 2 + (op.bias ? 1 : 0) + (op.add ? 1 : 0);
  require_inputs(op.name, in, inputs, inputs);
  if (in[0].shape.rank() != 2)
    fail<ShapeError>("layer_norm takes rows [N,features], not {}", in[0].text());
  require_channels(op.name, in, 1, op.bias ? 2 : 1);
  if (!std::isfinite(op.epsilon) || op.epsilon < 0)
    fail<ShapeError>("layer_norm: epsilon is {}; must be a finite number from 0", op.epsilon);
  if (op.add && in.back() != in[0])
    fail<ShapeError>("layer_norm adds a shortcut {} to {}", in.back().text(), in[0].text());
  const Type rows{DType::f32, {in[0].shape[0]}};
  Types out{in[0], rows, rows};
  if (op.add) out.push_back(in[0]);
  return out;
}

void grad(const LayerNorm& op, Adjoint& adjoint) {
  const bool sum = op.add && adjoint.has_d_out(3);
  std::vector<Tensor> in{adjoint.d_out(), op.add ? adjoint.out(3) : adjoint.in(0), adjoint.in(1),
                         adjoint.out(1), adjoint.out(2)};
  if (sum) in.push_back(adjoint.d_out(3));
  const std::vector<Tensor> out = adjoint.record(Phase::data_grad, LayerNormGrad{op.bias, sum}, in);
  if (adjoint.wants(0)) adjoint.give(0, out[0]);
  adjoint.give(1, out[1]);
  if (op.bias) adjoint.give(2, out[2]);
  if (const int shortcut = op.bias ? 3 : 2; op.add && adjoint.wants(shortcut))
    adjoint.give(shortcut, out[0]);
}

// A row stays in the cache between its statistics and y.
Cost cost(const LayerNorm& op, const Types& in, const Types& out) {
  return {(op.add ? 8.0 : 7.0) * static_cast<double>(in[0].shape.count()),
          bytes_of(in) + bytes_of(out), static_cast<double>(in[0].shape.back())};
}

std::string text(const LayerNorm& op) {
  return join(op.bias, "+bias", op.add, "+add");
}

Types infer(const LayerNormGrad& op, const Types& in) {
  const std::size_t inputs = op.sum ? 6 : 5;
  require_inputs(op.name, in, inputs, inputs);
  for (const std::size_t i : {std::size_t{1}, std::size_t{5}})
    if (i < inputs && in[i].shape != in[0].shape)
      fail<ShapeError>("layer_norm.dgrad: operands differ: {} and {}", in[0].shape.text(),
                       in[i].shape.text());
  require_channels(op.name, in, 2, 2);
  for (const std::size_t i : {std::size_t{3}, std::size_t{4}})
    if (in[i] != Type{DType::f32, {in[0].shape[0]}})
      fail<ShapeError>("layer_norm.dgrad of {} needs f32 {} as operand {}, got {}", in[0].text(),
                       in[0].shape[0], i, in[i].text());
  const Type channels{in[0].dtype, {in[0].shape.back()}};
  Types out{in[0], channels};
  if (op.bias) out.push_back(channels);
  if (op.bias_gradient) out.push_back(channels);
  return out;
}

Cost cost(const LayerNormGrad& op, const Types& in, const Types& out) {
  const Shape& x = in[0].shape;
  const double flops = (op.sum ? 13.0 : 12.0) + (op.bias_gradient ? 1.0 : 0.0);
  return {flops * static_cast<double>(x.count()), bytes_of(in) + bytes_of(out),
          static_cast<double>(std::max(x[0], x.back()))};
}

std::string text(const LayerNormGrad& op) {
  const std::string words = join(op.bias, "+bias", op.sum, "+sum");
  return join(!words.empty(), words, op.bias_gradient, "+d_bias");
}

}  // namespace warpstep

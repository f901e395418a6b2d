#include "engine/graph/ops/gelu.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

Cost gelu_cost(const Types& in, const Types& out, double flops) {
  return {flops * static_cast<double>(out[0].shape.count()), bytes_of(in) + bytes_of(out), 1};
}

std::string gelu_text(bool tanh) {
  return tanh ? "tanh" : "erf";
}

}  // namespace

Types infer(const Gelu& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {in[0]};
}
void grad(const Gelu& op, Adjoint& adjoint) {
  adjoint.give(
      0, adjoint.record(Phase::data_grad, GeluGrad{op.tanh}, {adjoint.d_out(), adjoint.in(0)})[0]);
}
Cost cost(const Gelu&, const Types& in, const Types& out) {
  return gelu_cost(in, out, gelu_flops);
}
std::string text(const Gelu& op) {
  return gelu_text(op.tanh);
}

Types infer(const GeluGrad& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  if (in[0].shape != in[1].shape)
    fail<ShapeError>("{}: operands differ: {} and {}", op.name, in[0].shape.text(),
                     in[1].shape.text());
  Types out{in[0]};
  if (op.bias_gradient) out.push_back({in[0].dtype, {in[0].shape.back()}});
  return out;
}
Cost cost(const GeluGrad& op, const Types& in, const Types& out) {
  Cost cost = gelu_cost(in, out, gelu_grad_flops);
  if (op.bias_gradient) add_column_sums(cost, out[0].shape);
  return cost;
}
std::string text(const GeluGrad& op) {
  return gelu_text(op.tanh) + (op.bias_gradient ? " +bias" : "");
}

}  // namespace warpstep

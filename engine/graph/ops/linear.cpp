#include "engine/graph/ops/linear.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/ops/gelu.h"
#include "engine/graph/ops/pointwise.h"

namespace warpstep {
namespace {

Cost matmul(const Types& in, const Types& out, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          bytes_of(in) + bytes_of(out), static_cast<double>(k)};
}

}  // namespace

Types infer(const Linear& op, const Types& in) {
  require_inputs(op.name, in, op.bias ? 3 : 2, op.bias ? 3 : 2);
  const Shape& x = in[0].shape;
  if (x.rank() != 2)
    fail<ShapeError>("linear takes [N,features], not {}; flatten images first", in[0].text());
  if (op.out < 1) fail<ShapeError>("linear to {} outputs; must be at least 1", op.out);
  if (in[1].shape != Shape{op.out, x[1]})
    fail<ShapeError>("weight is {}, but input {} needs {}x{}", in[1].shape.text(), x.text(), op.out,
                     x[1]);
  require_same_dtype(op.name, in[0], in[1]);
  Types out{{in[0].dtype, {x[0], op.out}}};
  if (op.mask) out.push_back({DType::u8, {x[0], 16 * ((op.out + 127) / 128)}});
  if (op.keep) out.push_back(out[0]);
  return out;
}

void grad(const Linear& op, Adjoint& adjoint) {
  Tensor d_z = adjoint.d_out();
  if (op.relu) d_z = adjoint.record(Phase::data_grad, ReluGrad{}, {d_z, adjoint.out()})[0];
  if (op.gelu && !op.keep)
    fail<Error>("a linear layer with gelu that keeps nothing has no adjoint");
  if (op.gelu)
    d_z = adjoint.record(Phase::data_grad, GeluGrad{.tanh = true}, {d_z, adjoint.out(1)})[0];
  if (adjoint.wants(1)) {
    const auto d =
        adjoint.record(Phase::weight_grad, LinearWeightGrad{op.bias}, {adjoint.in(0), d_z});
    adjoint.give(1, d[0]);
    if (op.bias) adjoint.give(2, d[1]);
  }
  if (adjoint.wants(0))
    adjoint.give(0, adjoint.record(Phase::data_grad, LinearDataGrad{}, {d_z, adjoint.in(1)})[0]);
}

Cost cost(const Linear& op, const Types& in, const Types& out) {
  Cost cost = matmul(in, out, in[0].shape[0], op.out, in[0].shape[1]);
  if (op.gelu) cost.flops += gelu_flops * static_cast<double>(out[0].shape.count());
  return cost;
}

std::string text(const Linear& op) {
  return std::string(op.bias ? "+bias" : "") + (op.relu ? " +relu" : "") +
         (op.mask ? " +mask" : "") + (op.gelu ? " +gelu" : "") + (op.keep ? " +z" : "");
}

Types infer(const LinearDataGrad& op, const Types& in) {
  const int inputs = op.relu ? 4 : op.gelu ? 3 : 2;
  require_inputs(op.name, in, inputs, inputs);
  const std::int64_t features = in[1].shape[1];
  Types out{{in[0].dtype, {in[0].shape[0], features}}};
  if (op.gelu && in[2] != out[0])
    fail<ShapeError>("linear.dgrad of gelu needs what it read, {}, got {}", out[0].text(),
                     in[2].text());
  if (op.relu || op.gelu) out.push_back({in[0].dtype, {features}});
  return out;
}

Cost cost(const LinearDataGrad& op, const Types& in, const Types& out) {
  const Types read(in.begin(), in.begin() + (op.relu || op.gelu ? 3 : 2));
  Cost cost = matmul(read, out, in[0].shape[0], in[1].shape[1], in[0].shape[1]);
  if (op.relu || op.gelu) add_column_sums(cost, out[0].shape);
  if (op.gelu) cost.flops += gelu_grad_flops * static_cast<double>(out[0].shape.count());
  return cost;
}

std::string text(const LinearDataGrad& op) {
  return op.relu ? "+relu +bias" : op.gelu ? "+gelu +bias" : "";
}

Types infer(const LinearWeightGrad& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  Types out{{in[0].dtype, {in[1].shape[1], in[0].shape[1]}}};
  if (op.bias) out.push_back({in[0].dtype, {in[1].shape[1]}});
  return out;
}

Cost cost(const LinearWeightGrad&, const Types& in, const Types& out) {
  return matmul(in, out, in[1].shape[1], in[0].shape[1], in[0].shape[0]);
}

std::string text(const LinearWeightGrad& op) {
  return op.bias ? "+bias" : "";
}

}  // namespace warpstep

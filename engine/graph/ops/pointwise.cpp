#include "engine/graph/ops/pointwise.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

Cost streaming(const Types& in, const Types& out, double flops_per_element) {
  return {flops_per_element * static_cast<double>(out[0].shape.count()),
          bytes_of(in) + bytes_of(out), 1};
}

Types same_shapes(std::string_view op, const Types& in) {
  require_inputs(op, in, 2, 2);
  if (in[0].shape != in[1].shape)
    fail<ShapeError>("{}: operands differ: {} and {}", op, in[0].shape.text(), in[1].shape.text());
  return {in[0]};
}

}  // namespace

Types infer(const Normalize& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  if ((in[0].dtype != DType::u8 && in[0].dtype != DType::f32) || in[0].shape.rank() != 4 ||
      in[0].shape[3] > std::int64_t{Normalize::max_channels})
    fail<ShapeError>("normalize takes u8 or f32 images [N,H,W,C] with at most {} channels, not {}",
                     Normalize::max_channels, in[0].text());
  return {{op.dtype, in[0].shape}};
}
Cost cost(const Normalize&, const Types& in, const Types& out) {
  return streaming(in, out, 2);
}
std::string text(const Normalize& op) {
  const bool keeps_numbers = op.scale == Normalize::ones && op.shift == Normalize{}.shift;
  return keeps_numbers ? fmt::format("f32 -> {}", name(op.dtype)) : "u8 -> (x/255 - mean)/std";
}

Types infer(const Relu& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {in[0]};
}
void grad(const Relu&, Adjoint& adjoint) {
  adjoint.give(0,
               adjoint.record(Phase::data_grad, ReluGrad{}, {adjoint.d_out(), adjoint.out()})[0]);
}
Cost cost(const Relu&, const Types& in, const Types& out) {
  return streaming(in, out, 1);
}

Types infer(const ReluGrad& op, const Types& in) {
  Types out = same_shapes(op.name, in);
  if (op.bias_gradient) out.push_back({in[0].dtype, {in[0].shape.back()}});
  return out;
}
Cost cost(const ReluGrad& op, const Types& in, const Types& out) {
  Cost cost = streaming(in, out, 1);
  if (op.bias_gradient) add_column_sums(cost, out[0].shape);
  return cost;
}
std::string text(const ReluGrad& op) {
  return op.bias_gradient ? "+bias" : "";
}

Types infer(const Add& op, const Types& in) {
  return same_shapes(op.name, in);
}
void grad(const Add&, Adjoint& adjoint) {
  for (int i = 0; i < 2; ++i)
    if (adjoint.wants(i)) adjoint.give(i, adjoint.d_out());
}
Cost cost(const Add&, const Types& in, const Types& out) {
  return streaming(in, out, 1);
}

Types infer(const Reshape& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  if (in[0].shape.count() != op.shape.count())
    fail<ShapeError>("{} has {} elements, {} has {}", in[0].shape.text(), in[0].shape.count(),
                     op.shape.text(), op.shape.count());
  return {{in[0].dtype, op.shape}};
}
void grad(const Reshape&, Adjoint& adjoint) {
  adjoint.give(0, adjoint.record(Phase::data_grad, Reshape{adjoint.in(0).type().shape},
                                 {adjoint.d_out()})[0]);
}
Cost cost(const Reshape&, const Types&, const Types&) {
  return {};
}
std::string text(const Reshape& op) {
  return op.shape.text();
}

Types infer(const Upload& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {in[0]};
}
Cost cost(const Upload&, const Types& in, const Types& out) {
  return streaming(in, out, 0);
}

Types infer(const Reorder& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  return {in[0]};
}
Cost cost(const Reorder&, const Types& in, const Types& out) {
  return streaming(in, out, 0);
}

}  // namespace warpstep

#include "engine/graph/ops/loss.h"

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/ops/pixels.h"

namespace warpstep {
namespace {

Type scalar(DType dtype) {
  return {dtype, {}};
}

void require_weights(std::string_view op, const Type& weights, std::int64_t classes) {
  if (weights != Type{DType::f32, {classes}})
    fail<ShapeError>("{} of {} classes needs weights f32 {}, got {}", op, classes, classes,
                     weights.text());
}

void require_rows(std::string_view op, const Types& in, bool mixed = false, bool weighted = false,
                  bool scaled = false) {
  const std::size_t inputs = 2 + (mixed ? 1 : 0) + (weighted ? 1 : 0) + (scaled ? 1 : 0);
  require_inputs(op, in, inputs, inputs);
  if (in[0].shape.rank() != 2) fail<ShapeError>("{} takes [N,classes], not {}", op, in[0].text());
  if (in[1] != Type{DType::i32, {in[0].shape[0]}})
    fail<ShapeError>("{} of {} needs labels i32 {}, got {}", op, in[0].text(), in[0].shape[0],
                     in[1].text());
  if (mixed) require_row_plans(op, in[2], in[0].shape[0]);
  if (weighted) require_weights(op, in[mixed ? 3 : 2], in[0].shape[1]);
}

void require_smoothing(std::string_view op, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    fail<ShapeError>("{}: label smoothing is a share from 0 to 1, not {}", op, smoothing);
}

std::string options_text(bool mixed, double smoothing, bool weighted, bool scaled) {
  std::string s;
  if (mixed) s += " +mixup";
  if (smoothing != 0) s += fmt::format(" +smoothing {}", smoothing);
  if (weighted) s += " +weights";
  if (scaled) s += " +scale";
  return s;
}

// exp and log count as one operation each, as in every table of FLOPs.
Cost rows(const Types& in, const Types& out, double flops_per_element) {
  const Shape& x = in[0].shape;
  return {flops_per_element * static_cast<double>(x.count()), bytes_of(in) + bytes_of(out),
          static_cast<double>(x.back())};
}

}  // namespace

Types infer(const LogSoftmax& op, const Types& in) {
  require_inputs(op.name, in, 1, 1);
  if (in[0].shape.rank() != 2)
    fail<ShapeError>("log_softmax takes [N,classes], not {}", in[0].text());
  return {{DType::f32, in[0].shape}};
}
void grad(const LogSoftmax&, Adjoint& adjoint) {
  const LogSoftmaxGrad d{adjoint.in(0).type().dtype};
  adjoint.give(0, adjoint.record(Phase::data_grad, d, {adjoint.d_out(), adjoint.out()})[0]);
}
Cost cost(const LogSoftmax&, const Types& in, const Types& out) {
  return rows(in, out, 4);
}

Types infer(const LogSoftmaxGrad& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  return {{op.dtype, in[0].shape}};
}
Cost cost(const LogSoftmaxGrad&, const Types& in, const Types& out) {
  return rows(in, out, 4);
}
std::string text(const LogSoftmaxGrad& op) {
  return op.dtype == DType::f32 ? "" : fmt::format("to {}", name(op.dtype));
}

Types infer(const Nll& op, const Types& in) {
  require_rows(op.name, in, op.mixed, op.weighted);
  require_smoothing(op.name, op.smoothing);
  return {scalar(DType::f32)};
}
void grad(const Nll& op, Adjoint& adjoint) {
  const NllGrad d{.classes = adjoint.in(0).type().shape[1],
                  .mixed = op.mixed,
                  .smoothing = op.smoothing,
                  .weighted = op.weighted,
                  .raw = op.raw};
  std::vector<Tensor> in{adjoint.in(1)};
  if (op.mixed) in.push_back(adjoint.in(2));
  if (op.weighted) in.push_back(adjoint.in(op.mixed ? 3 : 2));
  adjoint.give(0, adjoint.record(Phase::data_grad, d, in)[0]);
}
Cost cost(const Nll& op, const Types& in, const Types& out) {
  if (op.smoothing != 0) return rows(in, out, 2);
  const double n = static_cast<double>(in[0].shape[0]);
  if (op.mixed) return {4 * n, 3 * n * 4 + bytes_of({in[2]}) + bytes_of(out), 2 * n};
  return {n, 2 * n * 4 + bytes_of(out), n};
}
std::string text(const Nll& op) {
  const std::string s =
      (op.raw ? " raw" : "") + options_text(op.mixed, op.smoothing, op.weighted, false);
  return s.empty() ? s : s.substr(1);
}

Types infer(const NllGrad& op, const Types& in) {
  const std::size_t inputs = 1 + (op.mixed ? 1 : 0) + (op.weighted ? 1 : 0) + (op.scaled ? 1 : 0);
  require_inputs(op.name, in, inputs, inputs);
  if (op.mixed) require_row_plans(op.name, in[1], in[0].shape[0]);
  if (op.weighted) require_weights(op.name, in[op.mixed ? 2 : 1], op.classes);
  require_smoothing(op.name, op.smoothing);
  return {{op.dtype, {in[0].shape[0], op.classes}}};
}
Cost cost(const NllGrad&, const Types& in, const Types& out) {
  return {0, bytes_of(in) + bytes_of(out), 1};
}

std::string text(const NllGrad& op) {
  return fmt::format("{} classes{}{}", op.classes, op.raw ? " raw" : "",
                     options_text(op.mixed, op.smoothing, op.weighted, op.scaled));
}

Types infer(const Top1& op, const Types& in) {
  require_rows(op.name, in);
  return {scalar(DType::i32)};
}
Cost cost(const Top1&, const Types& in, const Types& out) {
  return rows(in, out, 1);
}

Types infer(const SoftmaxXent& op, const Types& in) {
  require_rows(op.name, in, op.mixed, op.weighted, op.scaled);
  require_smoothing(op.name, op.smoothing);
  Types out{scalar(DType::f32), scalar(DType::i32)};
  if (op.gradient) out.push_back(in[0]);
  return out;
}
void grad(const SoftmaxXent&, Adjoint& adjoint) {
  adjoint.give(0, adjoint.out(2));
}
Cost cost(const SoftmaxXent& op, const Types& in, const Types& out) {
  return rows(in, out, op.gradient ? 7 : 5);
}
std::string text(const SoftmaxXent& op) {
  return fmt::format("+top1{}{}", op.gradient ? " +gradient" : "",
                     options_text(op.mixed, op.smoothing, op.weighted, op.scaled));
}

Types infer(const LossGrad& op, const Types& in) {
  const std::size_t inputs = op.scaled ? 1 : 0;
  require_inputs(op.name, in, inputs, inputs);
  return {scalar(DType::f32)};
}
Cost cost(const LossGrad&, const Types& in, const Types& out) {
  return {0, bytes_of(out) + (in.empty() ? 0 : sizeof(float)), 1};
}
std::string text(const LossGrad& op) {
  return op.scaled ? "+scale" : "";
}

}  // namespace warpstep

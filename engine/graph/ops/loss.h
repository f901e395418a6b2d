// Classification losses. Labels are i32 [N]; a row with a negative label is padding: it counts in
// no mean, no gradient and no accuracy. The mean of no rows is 0. With `mixed` there are rows,
// row_plans_type(N): where a plan's weight is below 1 and its pair has a label, the row's loss is
// weight times its label's and 1 - weight times its pair's; accuracy goes by the row's label.
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x [N,K] -> y [N,K] f32, y = x - log(sum exp x), over the last axis.
struct LogSoftmax {
  static constexpr std::string_view name = "log_softmax";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool operator==(const LogSoftmax&) const = default;
};
Types infer(const LogSoftmax& op, const Types& in);
void grad(const LogSoftmax& op, Adjoint& adjoint);
Cost cost(const LogSoftmax& op, const Types& in, const Types& out);

// d_y, y -> d_x = d_y - exp(y) sum d_y.
struct LogSoftmaxGrad {
  static constexpr std::string_view name = "log_softmax.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::inputs,
                                   .layout_of = own_layout};
  DType dtype = DType::f32;  // of d_x, that of the logits; set by the precision
  bool operator==(const LogSoftmaxGrad&) const = default;
};
Types infer(const LogSoftmaxGrad& op, const Types& in);
Cost cost(const LogSoftmaxGrad& op, const Types& in, const Types& out);
std::string text(const LogSoftmaxGrad& op);

// log-probabilities [N,K], labels, rows if mixed, class weights f32 [K] if weighted -> loss, the
// mean over rows of -x[row, label]. With smoothing s a row's loss is (1 - s) of that and s / K
// times the sum of -x[row, k] over all classes; with weights each -x[row, k] is times the weight of
// k, and the mean is over the sum of the labels' weights (torch.nn.functional.cross_entropy); where
// that is 0 the loss is the rows' sum, without a gradient. x may have any dtype where it is a
// network's output itself.
struct Nll {
  static constexpr std::string_view name = "nll";
  static constexpr OpTraits traits{.kind = OpKind::loss,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::inputs,
                                   .layout_of = own_layout};
  bool mixed = false;
  double smoothing = 0;
  bool weighted = false;
  bool raw = false;  // x is a network's output, not log-probabilities
  bool operator==(const Nll&) const = default;
};
Types infer(const Nll& op, const Types& in);
void grad(const Nll& op, Adjoint& adjoint);
Cost cost(const Nll& op, const Types& in, const Types& out);
std::string text(const Nll& op);

// labels, rows if mixed, class weights if weighted, state if scaled -> d_x [N,classes] of the mean
// loss: without smoothing and weights -1 / rows at the label, 0 elsewhere; scaled: times the
// state's loss scale.
struct NllGrad {
  static constexpr std::string_view name = "nll.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t classes = 0;
  bool scaled = false;  // set by the precision
  bool mixed = false;
  double smoothing = 0;
  bool weighted = false;
  bool raw = false;          // x is a network's output, not log-probabilities
  DType dtype = DType::f32;  // of d_x; raw: set by the precision
  bool operator==(const NllGrad&) const = default;
};
Types infer(const NllGrad& op, const Types& in);
Cost cost(const NllGrad& op, const Types& in, const Types& out);
std::string text(const NllGrad& op);

// logits [N,K], labels -> i32, the rows whose largest logit (the first one where several are equal)
// is at the label.
struct Top1 {
  static constexpr std::string_view name = "top1";
  static constexpr OpTraits traits{.kind = OpKind::constant,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool operator==(const Top1&) const = default;
};
Types infer(const Top1& op, const Types& in);
Cost cost(const Top1& op, const Types& in, const Types& out);

// logits, labels, rows if mixed, class weights if weighted, state if scaled -> loss, top-1 count
// and, when training, d_logits = (softmax - onehot) / rows (without smoothing and weights, see
// Nll): LogSoftmax, Nll, Top1 and their adjoints in one pass over the logits. Made by fusion.
// scaled: d_logits times the state's loss scale.
struct SoftmaxXent {
  static constexpr std::string_view name = "softmax_xent";
  static constexpr OpTraits traits{.kind = OpKind::loss,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool gradient = false;
  bool scaled = false;  // set by the precision
  bool mixed = false;
  double smoothing = 0;
  bool weighted = false;
  bool operator==(const SoftmaxXent&) const = default;

  // d_logits in place of the logits; a mixed row reads the logit of its pair later.
  int in_place_output() const { return gradient && !mixed ? 2 : -1; }
};
Types infer(const SoftmaxXent& op, const Types& in);
void grad(const SoftmaxXent& op, Adjoint& adjoint);
Cost cost(const SoftmaxXent& op, const Types& in, const Types& out);
std::string text(const SoftmaxXent& op);

// state if scaled -> d_loss f32 [], the gradient of the loss itself: 1, or the state's loss scale.
// Where the backward half of a loss that is no cross-entropy begins, see set_loss().
struct LossGrad {
  static constexpr std::string_view name = "loss.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool scaled = false;  // set by the precision
  bool operator==(const LossGrad&) const = default;
};
Types infer(const LossGrad& op, const Types& in);
Cost cost(const LossGrad& op, const Types& in, const Types& out);
std::string text(const LossGrad& op);

}  // namespace warpstep

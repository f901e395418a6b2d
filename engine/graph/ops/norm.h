// Batch normalisation, with PyTorch's definitions (torch.nn.BatchNorm2d).
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x [N,H,W,C], gamma [C], beta [C], running_mean [C], running_var [C], with add a shortcut of x's
// shape -> y = gamma (x - mean) inv_std + beta (+ shortcut), clamped at 0 with relu, in x's dtype;
// inv_std = 1 / sqrt(var + epsilon). All but x, y and the shortcut are f32 in every precision.
// training: mean and var (biased) are those of the N H W rows of x, and come as outputs mean [C]
// and inv_std [C] after y; the running statistics, which are buffers, move in place: running +=
// momentum (statistic - running), with the unbiased variance (n / (n - 1)). Otherwise y is made
// from the running statistics, and is the only output.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(Role::buffer),
                                   .f32 = F32::parameters,
                                   .layout_of = 0};
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool training = true;    // see for_inference()
  std::int64_t ranks = 1;  // of a data-parallel job, whose rows are normalised together
  bool add = false;        // set by fusion
  bool relu = false;       // set by fusion
  bool operator==(const BatchNorm&) const = default;
};
Types infer(const BatchNorm& op, const Types& in);
void grad(const BatchNorm& op, Adjoint& adjoint);
Cost cost(const BatchNorm& op, const Types& in, const Types& out);
std::string text(const BatchNorm& op);

// d_y, x, gamma, mean, inv_std, y if the norm has a relu, a second d_y if sum, and the shortcut's
// x, gamma, mean and inv_std if it is a norm's result as well -> d_x, d_gamma [C],
// d_beta [C] in d_y's dtype, and with add and relu d_shortcut. With n rows, g = d_y (+ the second),
// 0 where y is at most 0, and h = (x - mean) inv_std: d_beta = sum g, d_gamma = sum g h, d_x =
// gamma inv_std (g - d_beta / n - h d_gamma / n), d_shortcut = g. (With add and without relu the
// shortcut's gradient is d_y itself.) Over several ranks n counts the rows of all, and d_x has the
// sums over all of them; d_gamma and d_beta are this rank's, as every gradient before its exchange.
// With shortcut_norm the fourth output is the gradient of the shortcut's x: that norm's formula on
// g in the dtype of d_y; its d_gamma and d_beta follow.
struct BatchNormGrad {
  static constexpr std::string_view name = "batch_norm.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = 1};
  BatchNorm norm;
  bool sum = false;            // set by fusion: the gradients of two users of y
  bool shortcut_norm = false;  // set by fusion: where gives_shortcut(), in one rank
  bool operator==(const BatchNormGrad&) const = default;

  bool gives_shortcut() const { return norm.add && norm.relu; }
  std::size_t shortcut_operand() const {  // the first of its four
    return 5 + (norm.relu ? 1 : 0) + (sum ? 1 : 0);
  }
};
Types infer(const BatchNormGrad& op, const Types& in);
Cost cost(const BatchNormGrad& op, const Types& in, const Types& out);
std::string text(const BatchNormGrad& op);

}  // namespace warpstep

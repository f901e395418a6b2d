// Layer normalisation (Ba, Kiros and Hinton, 2016; torch.nn.LayerNorm over the last axis).
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x [N,C], gamma [C], with bias beta [C], with add a shortcut [N,C] -> y = gamma (s - mean) inv_std
// (+ beta) in x's dtype, with mean [N] and inv_std [N] f32 of the rows of s: x, or with add x +
// shortcut, which is one more output [N,C]. inv_std = 1 / sqrt(var + epsilon), var biased. gamma
// and beta are f32 in every precision; mean and var are those of s before it is rounded to x's
// dtype.
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = 0};
  double epsilon = 1e-5;
  bool bias = true;
  bool add = false;  // set by fusion
  bool operator==(const LayerNorm&) const = default;
};
Types infer(const LayerNorm& op, const Types& in);
void grad(const LayerNorm& op, Adjoint& adjoint);
Cost cost(const LayerNorm& op, const Types& in, const Types& out);
std::string text(const LayerNorm& op);

// d_y, s, gamma, mean, inv_std, with sum a second gradient of s -> d_s (the gradient of x and of
// the shortcut), d_gamma [C], with bias d_beta [C], with bias_gradient the sum of d_s over the rows
// [C], in d_y's dtype. With h = (s - mean) inv_std and
// g = gamma d_y: d_s = inv_std (g - mean of g - h mean of (g h)), means over a row, plus the second
// gradient; d_gamma = sum of d_y h, d_beta = sum of d_y over the rows.
struct LayerNormGrad {
  static constexpr std::string_view name = "layer_norm.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = 1};
  bool bias = true;
  bool sum = false;
  bool bias_gradient = false;  // of the layer that made a part of s; set by fusion
  bool operator==(const LayerNormGrad&) const = default;
};
Types infer(const LayerNormGrad& op, const Types& in);
Cost cost(const LayerNormGrad& op, const Types& in, const Types& out);
std::string text(const LayerNormGrad& op);

}  // namespace warpstep

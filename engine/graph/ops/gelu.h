// The Gaussian error linear unit (Hendrycks and Gimpel, 2016; torch.nn.GELU).
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// Of an element: an exponential or an error function counts as ten.
inline constexpr double gelu_flops = 16, gelu_grad_flops = 24;

// y = x P(X <= x) for X ~ N(0, 1): x (1 + erf(x / sqrt(2))) / 2, or with tanh the approximation of
// GPT-2, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. x of any shape.
struct Gelu {
  static constexpr std::string_view name = "gelu";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 0};
  bool tanh = false;
  bool operator==(const Gelu&) const = default;
};
Types infer(const Gelu& op, const Types& in);
void grad(const Gelu& op, Adjoint& adjoint);
Cost cost(const Gelu& op, const Types& in, const Types& out);
std::string text(const Gelu& op);

// d_y, x -> d_x = d_y dy/dx, of the same y, and with bias_gradient d_bias [C], the sum of d_x over
// all but its last axis.
struct GeluGrad {
  static constexpr std::string_view name = "gelu.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 1};
  bool tanh = false;
  bool bias_gradient = false;  // set by fusion
  bool operator==(const GeluGrad&) const = default;
};
Types infer(const GeluGrad& op, const Types& in);
Cost cost(const GeluGrad& op, const Types& in, const Types& out);
std::string text(const GeluGrad& op);

}  // namespace warpstep

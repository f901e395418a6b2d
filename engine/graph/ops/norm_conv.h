// Convolutions and the batch norms around them, as libraries for GPUs fuse them: the convolution
// sums what it writes for the norm after it, and normalises, adds and clamps what it reads for the
// norm before it, whose result is never written. Made by fusion alone
// (engine/passes/fuse_norm_conv.h), where a backend says that it computes them. x is what a norm
// reads, its convolution's output; what belongs to a channel is f32 but for scale and bias, which
// are of the images' dtype.
#pragma once

#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/norm.h"

namespace warpstep {

// What a convolution's input is made of while it is read: p = x; p = max(0, scale x + bias); with a
// shortcut p = max(0, scale x + bias + shortcut); or with a norm's on both sides
// p = max(0, scale x + bias + shortcut_scale shortcut + shortcut_bias).
enum class Prologue : std::uint8_t { none, norm, join, join_norms };
std::string_view name(Prologue prologue);

// x, weight, then as the prologue says scale, bias, shortcut, shortcut_scale, shortcut_bias -> y =
// conv(p, weight), the sums of each of its channels and of their squares [out], and p itself where
// there is a shortcut: it ends a residual block, and others read it.
struct NormConv {
  static constexpr std::string_view name = "norm_conv";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Conv conv;  // without bias, relu and pool
  Prologue prologue = Prologue::none;
  bool operator==(const NormConv&) const = default;

  bool joins() const { return prologue >= Prologue::join; }
};
Types infer(const NormConv& op, const Types& in);
Cost cost(const NormConv& op, const Types& in, const Types& out);
std::string text(const NormConv& op);

// sum, squares [C] of `rows` numbers each, gamma, beta, running_mean, running_var -> mean, inv_std,
// scale = gamma inv_std, bias = beta - mean scale. Moves the running statistics as BatchNorm does.
// The variance is squares / rows - mean^2 in f32: of numbers far from 0 it loses digits.
struct NormFinalize {
  static constexpr std::string_view name = "norm_finalize";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(Role::buffer),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  BatchNorm norm;
  std::int64_t rows = 0;
  DType dtype = DType::f32;  // of scale and bias
  bool operator==(const NormFinalize&) const = default;
};
Types infer(const NormFinalize& op, const Types& in);
Cost cost(const NormFinalize& op, const Types& in, const Types& out);
std::string text(const NormFinalize& op);

// x, gamma, beta, mean, inv_std, with add a shortcut -> y = gamma (x - mean) inv_std + beta (+
// shortcut), clamped at 0 with relu: a norm that no convolution's prologue computes.
struct NormApply {
  static constexpr std::string_view name = "norm_apply";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  BatchNorm norm;
  bool operator==(const NormApply&) const = default;
};
Types infer(const NormApply& op, const Types& in);
Cost cost(const NormApply& op, const Types& in, const Types& out);
std::string text(const NormApply& op);

// d_z, weight, x, gamma, beta, mean, inv_std of the norm (with its relu) before the
// convolution
// -> g = the convolution's data gradient, 0 where gamma (x - mean) inv_std + beta is at most 0,
// and f32 [C]: d_gamma = sum g h, d_beta = sum g, with n rows and h = (x - mean) inv_std; by_g =
// gamma inv_std, by_x = -by_g inv_std d_gamma / n, constant = -by_g d_beta / n - by_x mean.
struct NormConvDataGrad {
  static constexpr std::string_view name = "norm_conv.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  Conv conv;
  bool operator==(const NormConvDataGrad&) const = default;
};
Types infer(const NormConvDataGrad& op, const Types& in);
Cost cost(const NormConvDataGrad& op, const Types& in, const Types& out);
std::string text(const NormConvDataGrad& op);

// g, x, d_gamma, d_beta, by_g, by_x, constant -> d_x = by_g g + by_x x + constant, and d_gamma and
// d_beta in the dtype of g, as every gradient of a parameter is.
struct NormGradApply {
  static constexpr std::string_view name = "norm_apply.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  bool operator==(const NormGradApply&) const = default;
};
Types infer(const NormGradApply& op, const Types& in);
Cost cost(const NormGradApply& op, const Types& in, const Types& out);

// x, scale, bias, d_z -> d_weight of a convolution of max(0, scale x + bias).
struct NormConvWeightGrad {
  static constexpr std::string_view name = "norm_conv.wgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Conv conv;
  bool operator==(const NormConvWeightGrad&) const = default;
};
Types infer(const NormConvWeightGrad& op, const Types& in);
Cost cost(const NormConvWeightGrad& op, const Types& in, const Types& out);
std::string text(const NormConvWeightGrad& op);

}  // namespace warpstep

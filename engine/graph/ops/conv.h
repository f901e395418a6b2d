// Two-dimensional convolution (cross-correlation, as in every framework) over NHWC images.
#pragma once

#include <optional>

#include "engine/graph/ops/op.h"
#include "engine/graph/ops/pool.h"

namespace warpstep {

// x [N,H,W,C], weight [out,kernel,kernel,C/groups], bias [out] if any -> y [N,H',W',out],
// H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1. With relu: y = max(0, conv +
// bias). With a pool: y and index of that pool instead, and the adjoints read index and the
// gradient of the pooled y.
struct Conv {
  static constexpr std::string_view name = "conv";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t out = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  bool relu = false;                 // set by fusion
  std::optional<MaxPool> pool = {};  // set by fusion, where Backend::computes() it
  bool operator==(const Conv&) const = default;
};
Shape weight_shape(const Conv& op, std::int64_t channels);
// What the convolution makes of images of shape x, before a pool.
Shape convolved(const Conv& op, const Shape& x);
Types infer(const Conv& op, const Types& in);
void grad(const Conv& op, Adjoint& adjoint);
Cost cost(const Conv& op, const Types& in, const Types& out);
std::string text(const Conv& op);

// d_z [N,H',W',out], weight -> d_x of shape `input`; with a pool d_y, weight, index. With relu the
// last operand is x, what a relu gave: d_x is 0 where x <= 0, the gradient of what that relu read.
struct ConvDataGrad {
  static constexpr std::string_view name = "conv.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Conv conv;
  Shape input;
  bool relu = false;  // set by fusion, where Backend::computes() it
  bool operator==(const ConvDataGrad&) const = default;
};
Types infer(const ConvDataGrad& op, const Types& in);
Cost cost(const ConvDataGrad& op, const Types& in, const Types& out);
std::string text(const ConvDataGrad& op);

// x, d_z -> d_weight and, with a bias, d_bias (the sum of d_z over all but its last axis); with a
// pool x, d_y, index.
struct ConvWeightGrad {
  static constexpr std::string_view name = "conv.wgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Conv conv;
  bool operator==(const ConvWeightGrad&) const = default;
};
Types infer(const ConvWeightGrad& op, const Types& in);
Cost cost(const ConvWeightGrad& op, const Types& in, const Types& out);
std::string text(const ConvWeightGrad& op);

}  // namespace warpstep

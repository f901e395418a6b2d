// Max and average pooling over NHWC images.
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x [N,H,W,C] -> y [N,H',W',C] and index u8 of y's shape: the position of the maximum in its
// window, row by row, the first one where several are equal; padding never wins. Of a window with
// NaN y is NaN and the index that of a NaN. With relu: y = max(0, maximum), and index is `none`
// where the maximum is at most 0, so that the adjoint needs neither x nor y.
struct MaxPool {
  static constexpr std::string_view name = "max_pool";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  static constexpr std::uint8_t none = 255;
  std::int64_t window = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
  bool relu = false;  // set by fusion
  bool operator==(const MaxPool&) const = default;
};
Types infer(const MaxPool& op, const Types& in);
void grad(const MaxPool& op, Adjoint& adjoint);
Cost cost(const MaxPool& op, const Types& in, const Types& out);
std::string text(const MaxPool& op);

// d_y, index -> d_x of shape `input`; every element is written. With bias_gradient also d_bias [C],
// the sum of d_x over all but its last axis.
struct MaxPoolGrad {
  static constexpr std::string_view name = "max_pool.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  MaxPool pool;
  Shape input;
  bool bias_gradient = false;  // set by fusion
  bool operator==(const MaxPoolGrad&) const = default;
};
Types infer(const MaxPoolGrad& op, const Types& in);
Cost cost(const MaxPoolGrad& op, const Types& in, const Types& out);
std::string text(const MaxPoolGrad& op);

// x [N,H,W,C] -> y [N,H',W',C], the mean over each window; padding counts as zeros, as PyTorch's
// count_include_pad. A window of 0 is the whole image, y [N,1,1,C].
struct AvgPool {
  static constexpr std::string_view name = "avg_pool";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t window = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool operator==(const AvgPool&) const = default;
};
Types infer(const AvgPool& op, const Types& in);
void grad(const AvgPool& op, Adjoint& adjoint);
Cost cost(const AvgPool& op, const Types& in, const Types& out);
std::string text(const AvgPool& op);

// d_y -> d_x of shape `input`; every element is written.
struct AvgPoolGrad {
  static constexpr std::string_view name = "avg_pool.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  AvgPool pool;
  Shape input;
  bool operator==(const AvgPoolGrad&) const = default;
};
Types infer(const AvgPoolGrad& op, const Types& in);
Cost cost(const AvgPoolGrad& op, const Types& in, const Types& out);
std::string text(const AvgPoolGrad& op);

}  // namespace warpstep

// Max pooling over NHWC images.
#pragma once

#include "engine/ops/op.h"

namespace warpstep {

// x [N,H,W,C] -> y [N,H',W',C] and index u8 of y's shape: the position of the maximum in its
// window, row by row, the first one where several are equal; padding never wins. With relu: y =
// max(0, maximum), and index is `none` where the maximum is not positive, so that the adjoint needs
// neither x nor y.
struct MaxPool {
  static constexpr std::string_view name = "max_pool";
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
  MaxPool pool;
  Shape input;
  bool bias_gradient = false;  // set by fusion
  bool operator==(const MaxPoolGrad&) const = default;
};
Types infer(const MaxPoolGrad& op, const Types& in);
Cost cost(const MaxPoolGrad& op, const Types& in, const Types& out);
std::string text(const MaxPoolGrad& op);

}  // namespace warpstep

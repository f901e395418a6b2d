// Dropout (torch.nn.Dropout): inverted, so that inference does nothing.
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x of any shape, state -> y = x / (1 - rate) or 0, the latter with probability `rate`. Element e
// (of the logical shape, rows last) is kept where uniform(words[d % 4]) >= rate, d =
// first_draw(state, elements of x) + e, words = draw(state.seed, Purpose::dropout, layer, d / 4):
// the same in forward and backward half, on every backend and in every layout, and for a row
// whatever rank it is on. It is its own adjoint.
struct Dropout {
  static constexpr std::string_view name = "dropout";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 0};
  double rate = 0.5;
  std::uint32_t layer = 0;  // distinguishes the model's dropouts
  bool operator==(const Dropout&) const = default;
};
Types infer(const Dropout& op, const Types& in);
void grad(const Dropout& op, Adjoint& adjoint);
Cost cost(const Dropout& op, const Types& in, const Types& out);
std::string text(const Dropout& op);

}  // namespace warpstep

// What makes the network's numbers of the loader's bytes where rows of a batch have plans of their
// own.
#pragma once

#include "engine/core/pixels.h"
#include "engine/graph/ops/op.h"

namespace warpstep {

// images u8 [any,H,W,C], rows row_plans_type(N) -> activations [N,height,width,C], what
// engine/core/pixels.h says of them, to the bit in f32. Nothing learns through it: no adjoint.
struct Augment {
  static constexpr std::string_view name = "augment";
  static constexpr OpTraits traits{.kind = OpKind::constant,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  PixelPlan plan;
  ImageExtent out;
  DType dtype = DType::f32;  // of y; set by the precision
  bool operator==(const Augment&) const = default;
};
Types infer(const Augment& op, const Types& in);
Cost cost(const Augment& op, const Types& in, const Types& out);
std::string text(const Augment& op);  // "affine 3x4, mask 0.25 dilated, mix"

// Throws ShapeError unless `type` is that of `rows` RowPlans.
void require_row_plans(std::string_view op, const Type& type, std::int64_t rows);

}  // namespace warpstep

// The fully connected layer.
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// x [N,K], weight [out,K], bias [out] if any -> y [N,out] = x weight^T + bias. With relu: y =
// max(0, y). With mask: also mask u8 [N, 16 ceil(out / 128)], bits that say where y is above 0, for
// the same backend's LinearDataGrad alone; rows of whole 128 bits, as cublasLt wants them. With
// gelu: y = gelu(y), in the form with tanh, and with keep also z [N,out], what that unit reads.
struct Linear {
  static constexpr std::string_view name = "linear";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t out = 0;
  bool bias = true;
  bool relu = false;  // set by fusion
  bool mask = false;  // set by fusion; with bias and relu
  bool gelu = false;  // set by fusion; with bias, without relu
  bool keep = false;  // with gelu
  bool operator==(const Linear&) const = default;
};
Types infer(const Linear& op, const Types& in);
void grad(const Linear& op, Adjoint& adjoint);
Cost cost(const Linear& op, const Types& in, const Types& out);
std::string text(const Linear& op);

// d_z [N,out], weight [out,K] -> d_x [N,K] = d_z weight. With relu, where x is the y of a layer
// with a mask: d_z, weight, mask, x -> d_x, 0 where the mask has no bit, and d_bias [K], the column
// sums of d_x. x is for kernels that cannot use the mask. With gelu, where x is the y of a layer
// with gelu: d_z, weight, the layer's z -> d_x, times the unit's slope at z, and d_bias likewise.
struct LinearDataGrad {
  static constexpr std::string_view name = "linear.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool relu = false;  // set by fusion
  bool gelu = false;  // set by fusion; without relu
  bool operator==(const LinearDataGrad&) const = default;
};
Types infer(const LinearDataGrad& op, const Types& in);
Cost cost(const LinearDataGrad& op, const Types& in, const Types& out);
std::string text(const LinearDataGrad& op);

// x [N,K], d_z [N,out] -> d_weight [out,K] = d_z^T x and, with a bias, d_bias [out] (the column
// sums of d_z).
struct LinearWeightGrad {
  static constexpr std::string_view name = "linear.wgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool bias = true;
  bool operator==(const LinearWeightGrad&) const = default;
};
Types infer(const LinearWeightGrad& op, const Types& in);
Cost cost(const LinearWeightGrad& op, const Types& in, const Types& out);
std::string text(const LinearWeightGrad& op);

}  // namespace warpstep

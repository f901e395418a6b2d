// Batch norm and the max pool after it as one op: what the norm gives is never written, and neither
// is its gradient. Made by fusion alone, where a backend says that it computes them.
#pragma once

#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"

namespace warpstep {

// x [N,H,W,C], gamma, beta, running_mean, running_var -> y [N,H',W',C] and index of the pool of
// gamma (x - mean) inv_std + beta, then mean and inv_std, as of BatchNorm in training and of one
// rank. Where the norm's results are equal by rounding alone, the index may be of any of them.
struct NormPool {
  static constexpr std::string_view name = "norm_pool";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(Role::buffer),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  BatchNorm norm;  // without relu and add
  MaxPool pool;
  bool operator==(const NormPool&) const = default;
};
Types infer(const NormPool& op, const Types& in);
Cost cost(const NormPool& op, const Types& in, const Types& out);
std::string text(const NormPool& op);

// d_y, index, x, gamma, mean, inv_std -> d_x, and d_gamma [C] and d_beta [C] in d_y's dtype: what
// BatchNormGrad makes of MaxPoolGrad's result.
struct NormPoolGrad {
  static constexpr std::string_view name = "norm_pool.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::parameters,
                                   .layout_of = own_layout};
  MaxPool pool;
  bool operator==(const NormPoolGrad&) const = default;
};
Types infer(const NormPoolGrad& op, const Types& in);
Cost cost(const NormPoolGrad& op, const Types& in, const Types& out);
std::string text(const NormPoolGrad& op);

}  // namespace warpstep

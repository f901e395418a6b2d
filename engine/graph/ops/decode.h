// What replaces embeddings and attention in a step that continues sequences of tokens
// (engine/passes/decode.h): of each, earlier steps have seen the tokens before `position`, and this
// step sees the next T. The caller keeps position + T <= P.
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// tokens i32 [N], position i32 [1], table [V,C], positions [P,C] -> x [N,C]: row n is the table's
// row of token n plus the positions' row position + n % T. N is a multiple of T; tokens are 0 to V
// - 1.
struct EmbedAt {
  static constexpr std::string_view name = "embed_at";
  static constexpr OpTraits traits{.kind = OpKind::constant,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t sequence = 0;  // T
  bool operator==(const EmbedAt&) const = default;
};
Types infer(const EmbedAt& op, const Types& in);
Cost cost(const EmbedAt& op, const Types& in, const Types& out);
std::string text(const EmbedAt& op);

// qkv [N,3C], cache f32 [N / T,P,2C], position i32 [1] -> o [N,C]: the rows of causal Attention for
// positions position to position + T - 1. Row j of a sequence's cache has the C keys, then the C
// values of its position j, of all heads; those of the step's own positions are written here, in
// place. Later rows are not read.
struct CachedAttention {
  static constexpr std::string_view name = "cached_attention";
  static constexpr OpTraits traits{.kind = OpKind::constant,
                                   .in_place = inputs(),
                                   .changes = roles(Role::buffer),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t heads = 1;
  std::int64_t sequence = 0;  // T
  bool operator==(const CachedAttention&) const = default;
};
Types infer(const CachedAttention& op, const Types& in);
Cost cost(const CachedAttention& op, const Types& in, const Types& out);
std::string text(const CachedAttention& op);

}  // namespace warpstep

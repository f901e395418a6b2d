// Embeddings of tokens and of their positions in a sequence (torch.nn.Embedding, twice, and a sum).
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// tokens i32 [N], order i32 [N], table [V,C], positions [P,C] -> x [N,C]: row n is the table's row
// of token n plus the positions' row n % T, for sequences of T <= P; N is a multiple of T. Tokens
// are 0 to V - 1; the loader refuses others. order has the numbers 0 to N - 1 sorted by their
// tokens, equal tokens in ascending order; only the adjoint reads it.
struct Embed {
  static constexpr std::string_view name = "embed";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t sequence = 0;  // T
  bool operator==(const Embed&) const = default;
};
Types infer(const Embed& op, const Types& in);
void grad(const Embed& op, Adjoint& adjoint);
Cost cost(const Embed& op, const Types& in, const Types& out);
std::string text(const Embed& op);

// d_x [N,C], tokens, order, with sum the gradient of the table so far [V,C] -> d_table [V,C], where
// each row is the sum of d_x over the rows with its token (plus what it was), and d_positions
// [P,C], where row t is the sum over the rows n with n % T = t, and 0 from T on. The sums are f32
// and run in ascending order of n, in chunks that depend on N alone: equal bits in every run.
// d_table takes the place of the gradient so far, which is that of a head with the same table.
struct EmbedGrad {
  static constexpr std::string_view name = "embed.wgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(3),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t vocabulary = 0;  // V
  std::int64_t positions = 0;   // P
  std::int64_t sequence = 0;    // T
  bool sum = false;
  bool operator==(const EmbedGrad&) const = default;
};
Types infer(const EmbedGrad& op, const Types& in);
Cost cost(const EmbedGrad& op, const Types& in, const Types& out);
std::string text(const EmbedGrad& op);

}  // namespace warpstep

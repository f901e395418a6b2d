// Multi-head self-attention (Vaswani et al., 2017;
// torch.nn.functional.scaled_dot_product_attention).
#pragma once

#include "engine/graph/ops/op.h"

namespace warpstep {

// qkv [N,3C], with dropout the state -> o [N,C] and statistics f32 [N / T, heads, T]. Rows are
// positions of sequences of T one after the other; a row has C queries, C keys and C values, each
// as `heads` vectors of D = C / heads. Of each sequence and head, with q, k and v [T,D]: o =
// dropout(softmax(q k^T / sqrt(D))) v, where with causal position i sees the positions j <= i
// alone. The statistics are log(sum over j of exp(q_i k_j / sqrt(D))), from which the adjoint makes
// the probabilities again. Dropout keeps a probability, over 1 - dropout, where uniform(words[d %
// 4]) >= dropout, d = first_draw(state, elements) + e, words = draw(state.seed, Purpose::dropout,
// layer, d / 4) for element e of [N / T, heads, T, T].
struct Attention {
  static constexpr std::string_view name = "attention";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  std::int64_t heads = 1;
  std::int64_t sequence = 0;  // T
  bool causal = true;
  double dropout = 0;
  std::uint32_t layer = 0;  // distinguishes the model's dropouts
  bool operator==(const Attention&) const = default;
};
Types infer(const Attention& op, const Types& in);
void grad(const Attention& op, Adjoint& adjoint);
Cost cost(const Attention& op, const Types& in, const Types& out);
std::string text(const Attention& op);

// d_o, qkv, o, statistics, with dropout the state -> d_qkv [N,3C]. With p the probabilities and m
// the dropout's factors (0 or 1 / (1 - dropout)): d_v = (p m)^T d_o, d_p = m (d_o v^T), d_s = p
// (d_p
// - sum over the row of d_o o) / sqrt(D), d_q = d_s k, d_k = d_s^T q.
struct AttentionGrad {
  static constexpr std::string_view name = "attention.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Attention attention;
  bool operator==(const AttentionGrad&) const = default;
};
Types infer(const AttentionGrad& op, const Types& in);
Cost cost(const AttentionGrad& op, const Types& in, const Types& out);
std::string text(const AttentionGrad& op);

}  // namespace warpstep

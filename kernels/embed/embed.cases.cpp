#include "kernels/cases.h"

namespace warpstep::cases::embed_cases {
namespace {

using Kind = Fill::Kind;

struct EmbedSize {
  const char* label;
  std::int64_t tokens, vocabulary, sequence, width;
  Fill fill;  // of the tokens
  bool heavy = false;

  // Some tables have more positions than the sequences.
  std::int64_t context() const { return sequence + tokens % 3; }
};

struct TokenSlots {
  Tensor tokens, order;
};
TokenSlots token_slots(Case& c, const EmbedSize& size) {
  c.heavy = size.heavy;
  const Type type{DType::i32, {size.tokens}};
  const Tensor tokens = input(c, "tokens", type, size.fill);
  return {tokens, input(c, "order", type, {Kind::order, 1, tokens.id})};
}

Tensor embedded(Case& c, const EmbedSize& size) {
  const TokenSlots slots = token_slots(c, size);
  return embed("wte", "wpe", slots.tokens, slots.order,
               {.vocabulary = size.vocabulary,
                .context = size.context(),
                .sequence = size.sequence,
                .width = size.width});
}

// The adjoint added to the gradient of a head with the same table: in its place, after the head's
// part, and apart from it, where the gradient so far is somebody else's.
void add_tied(List& list, const EmbedSize& size) {
  const std::string label(size.label);
  list.add(label + ", tied head", [&](Case& c) {
    const Tensor x = embedded(c, size);
    tied_head("lm_head", x, x);
  });
  list.add(label + ", gradient so far", [&](Case& c) {
    const TokenSlots slots = token_slots(c, size);
    const Tensor d_x = input(c, "d_x", {DType::f32, {size.tokens, size.width}});
    record(c,
           EmbedGrad{.vocabulary = size.vocabulary,
                     .positions = size.context(),
                     .sequence = size.sequence,
                     .sum = true},
           {d_x, slots.tokens, slots.order,
            input(c, "d_wte", {DType::f32, {size.vocabulary, size.width}})});
  });
}

void add_embed(List list) {
  for (const EmbedSize& size : {
           EmbedSize{"one token", 1, 1, 1, 3, {Kind::labels, 1}},
           EmbedSize{"1 channel", 12, 5, 4, 1, {Kind::labels, 5}},
           EmbedSize{"one sequence", 5, 11, 5, 8, {Kind::labels, 11}},
           EmbedSize{"3 sequences of 8", 24, 17, 8, 48, {Kind::labels, 17}},
           EmbedSize{"sequences of 1", 70, 5, 1, 7, {Kind::labels, 5}},
           EmbedSize{"equal tokens", 192, 9, 16, 20, {Kind::constant, 3}},
           EmbedSize{"the first and the last token of 300", 400, 300, 8, 12, {Kind::ends, 300}},
           EmbedSize{"two tokens of 90", 390, 90, 130, 33, {Kind::labels, 2}},
           EmbedSize{"all tokens different", 96, 96, 32, 24, {Kind::permuted, 1}},
           EmbedSize{"4099 tokens", 24, 4099, 8, 16, {Kind::labels, 4099}},
           EmbedSize{"more tokens than one chunk", 1500, 40, 100, 20, {Kind::labels, 40}},
       }) {
    list.add(size.label, [&](Case& c) { embedded(c, size); });
    add_tied(list, size);
  }
  const EmbedSize gpt2{"gpt2 b8", 8192, 50257, 1024, 768, {Kind::labels, 50257}, true};
  const EmbedSize characters{"65 characters", 16384, 65, 256, 384, {Kind::labels, 65}, true};
  for (const EmbedSize& size : {gpt2, characters})
    list.add(size.label, [&](Case& c) { embedded(c, size); });
  add_tied(list, characters);
}

const Folder embed_cases("embed", add_embed);

}  // namespace
}  // namespace warpstep::cases::embed_cases

// A plugin for text_test and runs_test: a model of text without settings, so that it has no context
// of its own, and one of images that names no size.
#include <array>

#include "models/plugin.h"

using namespace warpstep;

namespace {

Tensor no_context(const models::Tokens& in, const models::Settings&) {
  constexpr std::int64_t width = 16;
  const Tensor embedded = embed("wte", "wpe", in.tokens, in.order,
                                {.vocabulary = in.vocabulary,
                                 .context = 64,
                                 .sequence = in.sequence,
                                 .width = width,
                                 .deviation = 0.02});
  const Tensor a = linear("attn", layer_norm("ln_1", embedded), {.out = 3 * width});
  const Tensor x = add(embedded, attention(a, {.heads = 2, .sequence = in.sequence}));
  return tied_head("lm_head", layer_norm("ln_f", x), embedded);
}

Tensor no_size(Tensor images, std::int64_t classes) {
  return linear("fc", flatten(images), {.out = classes});
}

const std::array<models::Model, 2> all{{{.name = "no-context",
                                         .description = "a layer of attention",
                                         .image = {},
                                         .learning_rate = 1e-3,
                                         .logits = nullptr,
                                         .text_logits = no_context},
                                        {.name = "no-size",
                                         .description = "a layer",
                                         .image = {},
                                         .learning_rate = 1e-3,
                                         .logits = no_size}}};

}  // namespace

WARPSTEP_PLUGIN(all)

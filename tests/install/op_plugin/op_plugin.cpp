// A model whose loss is an op of another library.
#include <cosine_embedding.h>

#include <array>

#include "models/plugin.h"

using namespace warpstep;

static Tensor two_views(Tensor images, std::int64_t classes) {
  const Tensor x = flatten(images);
  const Tensor logits = linear("fc1", x, {.out = classes});
  const Tensor other = linear("fc2", x, {.out = classes});
  cosine_embedding_loss(logits, other, images.graph->find_input("labels"), 0.2);
  return logits;
}

static const std::array all{models::Model{.name = "two-views",
                                          .description = "with a loss of its own",
                                          .image = {4, 4, 1},
                                          .learning_rate = 1e-3,
                                          .logits = two_views}};

WARPSTEP_PLUGIN(all)

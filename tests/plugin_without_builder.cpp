// A plugin whose second model cannot be built: none of its models may be added.
#include <array>

#include "models/plugin.h"

namespace {

using namespace warpstep;

Tensor one_layer(Tensor images, std::int64_t classes) {
  return linear("fc", flatten(images), {.out = classes});
}
const models::Model whole{.name = "one-layer",
                          .description = "has a builder",
                          .image = {4, 4, 1},
                          .learning_rate = 1,
                          .logits = one_layer};
const models::Model empty{.name = "no-layer",
                          .description = "has none",
                          .image = {4, 4, 1},
                          .learning_rate = 1,
                          .logits = nullptr};
const std::array all{whole, empty};

}  // namespace

WARPSTEP_PLUGIN(all)

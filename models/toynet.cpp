#include <fmt/format.h>

#include "models/zoo.h"

namespace warpstep::models {

// 66 thousand parameters; 1.5 GFLOP per image of 256x256 forward, three quarters of them in the
// first two layers. Eight pools make one pixel of 256x256.
Tensor toynet(Tensor x, std::int64_t classes) {
  x = relu(conv("conv1", x, {.out = 30, .padding = 1}));
  for (int layer = 2; layer <= 9; ++layer)
    x = max_pool(relu(conv(fmt::format("conv{}", layer), x, {.out = 30, .padding = 1})));
  return flatten(conv("conv10", x, {.out = classes, .kernel = 1}));
}

}  // namespace warpstep::models

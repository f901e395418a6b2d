#include "models/zoo.h"

namespace warpstep::models {

Tensor mlp(Tensor x, std::int64_t classes) {
  x = relu(linear("fc1", flatten(x), {.out = 512}));
  x = relu(linear("fc2", x, {.out = 512}));
  return linear("fc3", x, {.out = classes});
}

}  // namespace warpstep::models

// The models' builders; the zoo gives them names.
#pragma once

#include "engine/layers.h"

namespace warpstep::models {

Tensor cifar10cnn(Tensor images, std::int64_t classes);
Tensor mlp(Tensor images, std::int64_t classes);
Tensor toynet(Tensor images, std::int64_t classes);

}  // namespace warpstep::models

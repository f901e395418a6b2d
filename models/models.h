// The models' builders; the zoo gives them names.
#pragma once

#include "engine/layers.h"

namespace warpstep::models {

Tensor airbench(Tensor images, std::int64_t classes);
Tensor cifar10cnn(Tensor images, std::int64_t classes);
Tensor mlp(Tensor images, std::int64_t classes);
Tensor mnist_cnn(Tensor images, std::int64_t classes);
Tensor resnet9(Tensor images, std::int64_t classes);
Tensor resnet18(Tensor images, std::int64_t classes);
Tensor resnet34(Tensor images, std::int64_t classes);
Tensor resnet50(Tensor images, std::int64_t classes);
Tensor toynet(Tensor images, std::int64_t classes);

}  // namespace warpstep::models

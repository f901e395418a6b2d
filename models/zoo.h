// The table of models that come with Warpstep, and their builders.
#pragma once

#include <span>
#include <string_view>

#include "engine/graph/layers.h"

namespace warpstep::models {

struct Model {
  std::string_view name;
  std::string_view description;
  Shape image;           // [H,W,C] it was made for; others work where the layers fit
  double learning_rate;  // with Adam, the default optimiser
  Tensor (*logits)(Tensor images, std::int64_t classes);  // of normalised images [N,H,W,C]
  std::string_view transforms{};                          // default of its training data
};

std::span<const Model> zoo();
const Model& find(std::string_view name);  // UsageError with the nearest name

// The builders, one file each: from normalised images [N,H,W,C] to logits [N,classes].
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

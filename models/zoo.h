// The models that come with Warpstep, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/layers.h"

namespace warpstep::models {

struct Model {
  std::string_view name;
  std::string_view description;
  Shape image;           // [H,W,C] it was made for; others work where the layers fit
  double learning_rate;  // with Adam, as it was published
  Tensor (*logits)(Tensor images, std::int64_t classes);  // of normalised images [N,H,W,C]
};

std::span<const Model> zoo();
const Model& find(std::string_view name);  // UsageError with the nearest name

struct BuildOptions {
  std::int64_t batch = 128;
  Shape image;  // empty: the model's own
  std::int64_t classes = 10;
  std::vector<float> mean, std;  // of x / 255, one a channel; empty: 0.5 and 0.25
};

// The forward half of a step: inputs `images` u8 [N,H,W,C] and `labels` i32 [N], normalisation, the
// model, its loss.
Graph build(const Model& model, const BuildOptions& options);

}  // namespace warpstep::models

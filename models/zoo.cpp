#include "models/zoo.h"

#include <fmt/ranges.h>

#include <array>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "models/models.h"

namespace warpstep::models {
namespace {

const std::array<Model, 2> all{{
    {"cifar10cnn",
     "four 3x3 convolutions (8-32-64-128) and two linear layers, for 32x32 images",
     {32, 32, 3},
     1e-4,
     cifar10cnn},
    {"mlp", "three linear layers (512-512-classes), for MNIST", {28, 28, 1}, 1e-3, mlp},
}};

}  // namespace

std::span<const Model> zoo() {
  return all;
}

const Model& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Model& model : all) {
    if (model.name == name) return model;
    names.emplace_back(model.name);
  }
  fail<UsageError>("no model is called '{}'{} (there are {})", name, suggestion(name, names),
                   fmt::join(names, ", "));
}

Graph build(const Model& model, const BuildOptions& options) {
  Graph graph;
  const Shape image = options.image.rank() == 0 ? model.image : options.image;
  if (image.rank() != 3)
    fail<ShapeError>("{}: images are [H,W,C], not {}", model.name, image.text());
  const Tensor images =
      graph.input("images", {DType::u8, {options.batch, image[0], image[1], image[2]}});
  const Tensor labels = graph.input("labels", {DType::i32, {options.batch}});
  const std::vector<float> half(idx(image[2]), 0.5F), quarter(idx(image[2]), 0.25F);
  const Tensor x = normalize(images, options.mean.empty() ? half : options.mean,
                             options.std.empty() ? quarter : options.std);
  cross_entropy(model.logits(x, options.classes), labels);
  return graph;
}

}  // namespace warpstep::models

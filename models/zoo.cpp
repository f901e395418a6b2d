#include "models/zoo.h"

#include <fmt/ranges.h>

#include <array>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::models {
namespace {

struct Inputs {
  Tensor images, labels, rows;  // rows: none (no graph) where nothing needs them
};

Inputs declare_inputs(Graph& graph, const BuildOptions& options, const Shape& image) {
  const bool planned = options.images == Images::window || options.images == Images::set;
  const bool is_set = options.images == Images::set;
  const Shape& seen = planned && options.stored.rank() == 3 ? options.stored : image;
  const Role role = options.uploaded ? Role::resident : Role::input;
  const DType dtype = options.images == Images::floats ? DType::f32 : DType::u8;
  const Shape shape{is_set ? options.samples : options.batch, seen[0], seen[1], seen[2]};
  Inputs inputs;
  inputs.images = graph.input("images", {dtype, shape}, is_set ? Role::resident : role);
  inputs.labels = graph.input("labels", {DType::i32, {options.batch}}, role);
  if (planned || options.rows)
    inputs.rows = graph.input("rows", row_plans_type(options.batch), role);
  return inputs;
}

// The numbers that the network sees.
Tensor pixels(const Inputs& inputs, const BuildOptions& options, const Shape& image) {
  if (options.images == Images::floats) return convert(inputs.images);
  if (options.images != Images::bytes)
    return augment(inputs.images, inputs.rows, *options.pixels, {image[0], image[1]});
  const std::vector<float> half(idx(image[2]), 0.5F), quarter(idx(image[2]), 0.25F);
  return normalize(inputs.images, options.mean.empty() ? half : options.mean,
                   options.std.empty() ? quarter : options.std);
}

}  // namespace

Graph build(const Model& model, const BuildOptions& options) {
  Graph graph;
  const Shape image = options.image.rank() == 0 ? model.image : options.image;
  if (image.rank() != 3)
    fail<ShapeError>("{}: images are [H,W,C], not {}", model.name, image.text());
  const bool planned = options.images == Images::window || options.images == Images::set;
  if (planned && !options.pixels)
    fail<ShapeError>("{}: windows of images, or a set of them, need a plan for their pixels",
                     model.name);
  const Inputs inputs = declare_inputs(graph, options, image);
  const Tensor logits = model.logits(pixels(inputs, options, image), options.classes);
  const bool mixed = options.rows || (planned && options.pixels->mix);
  cross_entropy(logits, inputs.labels, mixed ? inputs.rows : Tensor{}, options.loss);
  return graph;
}

namespace {

const std::array<Model, 9> all{{
    {"cifar10cnn",
     "four 3x3 convolutions (8-32-64-128) and two linear layers, for 32x32 images",
     {32, 32, 3},
     1e-4,
     cifar10cnn},
    {"mlp", "three linear layers (512-512-classes), for MNIST", {28, 28, 1}, 1e-3, mlp},
    {"mnist_cnn",
     "two 3x3 convolutions (16-32), a batch norm and two linear layers, for MNIST",
     {28, 28, 1},
     1e-3,
     mnist_cnn},
    {"airbench",
     "seven convolutions (24-64-256-256) with batch norms, for 32x32 images: accurate soonest",
     {32, 32, 3},
     1e-3,
     airbench,
     "random-crop=32:pad=4,flip,normalize"},
    {"resnet9",
     "eight 3x3 convolutions (64-128-256-512) with batch norms and two residuals, for 32x32 images",
     {32, 32, 3},
     1e-3,
     resnet9,
     "random-crop=32:pad=4,flip,normalize"},
    {"resnet18", "torchvision's ResNet-18, for 224x224 images", {224, 224, 3}, 1e-3, resnet18},
    {"resnet34", "torchvision's ResNet-34, for 224x224 images", {224, 224, 3}, 1e-3, resnet34},
    {"resnet50", "torchvision's ResNet-50 v1.5, for 224x224 images", {224, 224, 3}, 1e-3, resnet50},
    {"toynet",
     "ten convolutions of 30 channels, eight of them pooled, for 256x256 images",
     {256, 256, 3},
     1e-3,
     toynet,
     "random-crop=256,random-mask=0.25:dilate,yuv,scale"},
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

}  // namespace warpstep::models

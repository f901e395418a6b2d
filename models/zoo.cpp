#include "models/zoo.h"

#include <array>

#include "models/checks.h"

namespace warpstep::models {
namespace {

const std::array<Model, 12> own{{
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
     "seven convolutions (24-64-256-256) with batch norms, for 32x32 images: learns fastest",
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
    {"gpt2",
     "GPT-2 small, 124 million parameters, for text",
     {},
     6e-4,
     nullptr,
     "",
     gpt2,
     "",
     gpt2_settings},
    {"gpt2-medium",
     "GPT-2 medium, 355 million parameters, for text",
     {},
     3e-4,
     nullptr,
     "",
     gpt2,
     "layers=24,heads=16,width=1024",
     gpt2_settings},
    {"gpt2-nano",
     "a GPT-2 of 0.8 million parameters that learns Shakespeare's letters on a CPU, for text",
     {},
     1e-3,
     nullptr,
     "",
     gpt2,
     "layers=4,heads=4,width=128,context=64,gelu=erf,bias=no",
     gpt2_settings},
}};

std::deque<Model>& all() {
  static std::deque<Model> models(own.begin(), own.end());
  return models;
}

}  // namespace

const std::deque<Model>& zoo() {
  return all();
}

void add_model(const Model& model) {
  require_new(model, all());
  all().push_back(model);
}

Settings resolve_settings(const Model& model, std::span<const std::string> assigned) {
  std::vector<std::string> both = assignments(model.settings);
  both.insert(both.end(), assigned.begin(), assigned.end());
  return {model.name, settings_of(model), both};
}

}  // namespace warpstep::models

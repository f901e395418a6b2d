// The models that come with Warpstep, by name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/graph/layers.h"

namespace warpstep::models {

// The models' builders; the zoo gives them names.

Tensor airbench(Tensor images, std::int64_t classes);
Tensor cifar10cnn(Tensor images, std::int64_t classes);
Tensor mlp(Tensor images, std::int64_t classes);
Tensor mnist_cnn(Tensor images, std::int64_t classes);
Tensor resnet9(Tensor images, std::int64_t classes);
Tensor resnet18(Tensor images, std::int64_t classes);
Tensor resnet34(Tensor images, std::int64_t classes);
Tensor resnet50(Tensor images, std::int64_t classes);
Tensor toynet(Tensor images, std::int64_t classes);

struct Model {
  std::string_view name;
  std::string_view description;
  Shape image;           // [H,W,C] it was made for; others work where the layers fit
  double learning_rate;  // with the optimiser it was published with
  Tensor (*logits)(Tensor images, std::int64_t classes);  // of normalised images [N,H,W,C]
  std::string_view transforms{};  // of its training data, where a run asks for no others
};

std::span<const Model> zoo();
const Model& find(std::string_view name);  // UsageError with the nearest name

// How a batch's images come to the step.
enum class Images : std::uint8_t {
  bytes,   // u8 [N,H,W,C], normalised by mean and std
  window,  // u8 [N,stored], of which each row's plan makes the network's numbers
  set,     // u8 [samples,stored], a whole data set in the device's memory; likewise
  floats,  // f32 [N,H,W,C], the network's numbers
};

struct BuildOptions {
  std::int64_t batch = 128;
  Shape image;  // [H,W,C] that the model sees; empty: its own
  std::int64_t classes = 10;
  std::vector<float> mean, std;  // of x / 255, one a channel; empty: 0.5 and 0.25
  Images images = Images::bytes;
  std::optional<PixelPlan> pixels{};  // of window and set, which need it
  Shape stored{};                     // of window and set: [H,W,C] of an image; empty: as `image`
  std::int64_t samples = 0;           // of a set
  bool rows = false;                  // labels are mixed though the plan, if any, mixes no pixels
  LossOptions loss{};
  bool uploaded = false;  // the inputs are in the device's memory: a thread beside the step put
                          // them there
};

// The forward half of a step: inputs `images`, `labels` i32 [N] and, for a pixel plan or mixed
// labels, `rows` i32 [N,12] (a RowPlan each), in this order; the network's numbers, the model, its
// loss. Loss and pixels are mixed where the plan says so. ShapeError: a window or a set without a
// plan.
Graph build(const Model& model, const BuildOptions& options);

}  // namespace warpstep::models

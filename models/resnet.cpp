#include <fmt/format.h>

#include <array>
#include <string>

#include "models/zoo.h"

namespace warpstep::models {
namespace {

// Residual networks (He et al., "Deep residual learning for image recognition", 2015) in version
// 1.5, which strides in the 3x3 convolution of a bottleneck, with the names and the initialisation
// of torchvision.models.resnet: weights can be exchanged with it.

using Stages = std::array<int, 4>;  // blocks in each

Tensor conv_bn(const std::string& conv_name, const std::string& norm_name, Tensor x, Conv op,
               Where where = Where::current()) {
  op.bias = false;
  return batch_norm(norm_name, conv(conv_name, x, op, ConvInit::kaiming_fan_out, where), {}, where);
}

// The input, brought to the block's output shape where it has another.
Tensor shortcut(const std::string& name, Tensor x, std::int64_t channels, std::int64_t stride) {
  if (stride == 1 && x.channels() == channels) return x;
  return conv_bn(name + ".downsample.0", name + ".downsample.1", x,
                 {.out = channels, .kernel = 1, .stride = stride});
}

Tensor basic_block(const std::string& name, Tensor x, std::int64_t width, std::int64_t stride) {
  Tensor y = relu(
      conv_bn(name + ".conv1", name + ".bn1", x, {.out = width, .stride = stride, .padding = 1}));
  y = conv_bn(name + ".conv2", name + ".bn2", y, {.out = width, .padding = 1});
  return relu(add(y, shortcut(name, x, width, stride)));
}

Tensor bottleneck(const std::string& name, Tensor x, std::int64_t width, std::int64_t stride) {
  Tensor y = relu(conv_bn(name + ".conv1", name + ".bn1", x, {.out = width, .kernel = 1}));
  y = relu(
      conv_bn(name + ".conv2", name + ".bn2", y, {.out = width, .stride = stride, .padding = 1}));
  y = conv_bn(name + ".conv3", name + ".bn3", y, {.out = 4 * width, .kernel = 1});
  return relu(add(y, shortcut(name, x, 4 * width, stride)));
}

template <class Block>
Tensor resnet(Tensor x, std::int64_t classes, const Stages& stages, Block block) {
  x = relu(conv_bn("conv1", "bn1", x, {.out = 64, .kernel = 7, .stride = 2, .padding = 3}));
  x = max_pool(x, {.window = 3, .stride = 2, .padding = 1});
  for (int stage = 0; stage < 4; ++stage)
    for (int b = 0; b < stages[idx(stage)]; ++b)
      x = block(fmt::format("layer{}.{}", stage + 1, b), x, std::int64_t{64} << stage,
                stage > 0 && b == 0 ? 2 : 1);
  return linear("fc", flatten(global_avg_pool(x)), {.out = classes});
}

}  // namespace

// 11.7 million parameters with 1000 classes; 3.6 GFLOP per image of 224x224 forward.
Tensor resnet18(Tensor x, std::int64_t classes) {
  return resnet(x, classes, {2, 2, 2, 2}, basic_block);
}

// 21.8 million parameters; 7.3 GFLOP.
Tensor resnet34(Tensor x, std::int64_t classes) {
  return resnet(x, classes, {3, 4, 6, 3}, basic_block);
}

// 25.6 million parameters; 8.2 GFLOP.
Tensor resnet50(Tensor x, std::int64_t classes) {
  return resnet(x, classes, {3, 4, 6, 3}, bottleneck);
}

}  // namespace warpstep::models

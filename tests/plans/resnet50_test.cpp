// ResNet-50 as a whole training step on an H100 or H200 that is assumed, at the sizes that it is
// trained at: cuDNN has an engine for each of its convolutions, without bias, forward and back, and
// from the images' padding to the last pool nothing is stored in another way.
#include <gtest/gtest.h>

#include "engine/compile.h"
#include "tests/small_graphs.h"

namespace warpstep {
namespace {

Tensor convolved(const std::string& name, Tensor x, std::int64_t out, std::int64_t kernel,
                 std::int64_t stride) {
  const Conv op{
      .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false};
  return batch_norm(name + ".bn", conv(name, x, op));
}

Tensor bottleneck(const std::string& name, Tensor x, std::int64_t width, std::int64_t stride) {
  Tensor y = relu(convolved(name + ".conv1", x, width, 1, 1));
  y = relu(convolved(name + ".conv2", y, width, 3, stride));
  y = convolved(name + ".conv3", y, 4 * width, 1, 1);
  const bool projects = stride != 1 || x.channels() != 4 * width;
  return relu(add(y, projects ? convolved(name + ".shortcut", x, 4 * width, 1, stride) : x));
}

struct Size {
  std::int64_t batch, image;
};
void PrintTo(const Size& size, std::ostream* out) {
  *out << size.batch << " images of " << size.image;
}

Graph resnet50(const Size& size) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {size.batch, size.image, size.image, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {size.batch}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  Tensor x = relu(convolved("conv1", normalize(images, half, half), 64, 7, 2));
  x = max_pool(x, {.window = 3, .stride = 2, .padding = 1});
  const std::array<int, 4> depths{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < depths.size(); ++stage)
    for (int i = 0; i < depths[stage]; ++i)
      x = bottleneck(fmt::format("layer{}.{}", stage + 1, i), x, std::int64_t{64} << stage,
                     i == 0 && stage > 0 ? 2 : 1);
  cross_entropy(linear("fc", flatten(global_avg_pool(x)), {.out = 1000}), labels);
  return g;
}

bool is_convolution(const AnyOp& op) {
  return std::holds_alternative<Conv>(op) || std::holds_alternative<ConvDataGrad>(op) ||
         std::holds_alternative<ConvWeightGrad>(op);
}

class Resnet50Plans : public testing::TestWithParam<std::tuple<Size, Precision>> {
 protected:
  void expect_plans(BackendOptions options) const {
    const auto& [size, precision] = GetParam();
    options.assumed_device = "sm_90";
    options.tf32 = precision == Precision::tf32;
    const auto backend = open_backend("cuda", options);
    const StepOptions step = options_for(*backend, {.precision = precision});
    Graph graph = compile_step(resnet50(size), step);
    backend->choose_layouts(graph);
    EXPECT_EQ(testing_support::count<Reorder>(graph), 0);
    EXPECT_EQ(testing_support::count<BatchNorm>(graph), 53);
    std::size_t convolutions = 0;
    for (const Node& node : graph.nodes) {
      if (is_view(node.op)) continue;
      const auto kernel = backend->bind(graph, node);
      const std::string how = node.title() + ": " + kernel->implementation();
      EXPECT_LE(kernel->workspace_bytes(), options.workspace_cap) << how;
      if (!is_convolution(node.op)) continue;
      ++convolutions;
      EXPECT_NE(how.find(": cudnn engine"), how.npos) << how;
      const bool on_tensor_cores = how.find("tensor cores") != how.npos;
      if (precision != Precision::tf32) {  // which may compute in full f32
        EXPECT_EQ(on_tensor_cores, precision != Precision::fp32) << how;
      }
    }
    EXPECT_EQ(convolutions, 53U * 3 - 1);  // the images want no gradient
  }
};

TEST_P(Resnet50Plans, CoverEveryConvolution) {
  expect_plans({});
}

TEST_P(Resnet50Plans, CoverEveryConvolutionDeterministically) {
  expect_plans({.deterministic = true});
}

INSTANTIATE_TEST_SUITE_P(, Resnet50Plans,
                         testing::Combine(testing::Values(Size{256, 224}, Size{128, 32}),
                                          testing::Values(Precision::fp32, Precision::tf32,
                                                          Precision::bf16, Precision::fp16)),
                         [](const auto& of) {
                           return fmt::format("images_of_{}_{}", std::get<0>(of.param).image,
                                              name(std::get<1>(of.param)));
                         });

}  // namespace
}  // namespace warpstep

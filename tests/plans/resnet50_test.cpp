// ResNet-50 as a whole training step on an assumed H100 or H200, at the sizes of its training:
// cuDNN has an engine for each of its convolutions, without bias, forward and backward, and the
// layout does not change from the images' padding to the last pool.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>

#include "engine/passes/compile.h"
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

template <class... Op>
bool is_any_of(const AnyOp& op) {
  return (std::holds_alternative<Op>(op) || ...);
}

bool is_convolution(const AnyOp& op) {
  return is_any_of<Conv, ConvDataGrad, ConvWeightGrad, NormConv, NormConvDataGrad,
                   NormConvWeightGrad>(op);
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
    // FusesWhatItsLibraryHasEnginesFor, none of which gives the same bits every time.
    const int whole = precision == Precision::fp16 && !options.deterministic ? 0 : 52;
    EXPECT_EQ(testing_support::count<BatchNorm>(graph), whole);
    EXPECT_EQ(testing_support::count<NormPool>(graph), 1);  // the stem's
    std::size_t convolutions = 0;
    for (const Node& node : graph.nodes) {
      if (is_view(node.op)) continue;
      const auto kernel = backend->bind(graph, node);
      const std::string how = node.title() + ": " + kernel->implementation();
      EXPECT_LE(kernel->workspace_bytes(), options.workspace_cap) << how;
      if (!is_convolution(node.op)) continue;
      ++convolutions;
      const bool is_16_bits = precision == Precision::fp16 || precision == Precision::bf16;
      const bool is_own = is_16_bits && node.scope == "conv1";
      EXPECT_NE(how.find(is_own ? ": stem 7x7" : ": cudnn engine"), how.npos) << how;
      const bool on_tensor_cores = how.find("tensor cores") != how.npos;
      // tf32 may compute in full f32; for fused engines cuDNN does not report it.
      if (precision != Precision::tf32 && is_any_of<Conv, ConvDataGrad, ConvWeightGrad>(node.op)) {
        EXPECT_EQ(on_tensor_cores, precision != Precision::fp32) << how;
      }
    }
    EXPECT_EQ(convolutions, 53U * 3 - 1);  // the images need no gradient
  }
};

TEST_P(Resnet50Plans, CoverEveryConvolution) {
  expect_plans({});
}

TEST_P(Resnet50Plans, CoverEveryConvolutionDeterministically) {
  expect_plans({.deterministic = true});
}

// The fused ops of a layer, by the scopes of its calls: "norm_conv norm" or "norm_conv.dgrad".
std::string what(const AnyOp& op) {
  const auto* conv = std::get_if<NormConv>(&op);
  return conv ? fmt::format("{} {}", name(op), name(conv->prologue)) : std::string(name(op));
}

class FusedResnet50 : public testing::TestWithParam<Size> {
 protected:
  static Graph compiled(const Backend& backend, const Size& size, Precision precision,
                        std::set<std::string, std::less<>> no_fuse = {}) {
    StepOptions options{.precision = precision};
    options.no_fuse = std::move(no_fuse);
    return compile_step(resnet50(size), options_for(backend, options));
  }
  // Of all calls but updates.
  static double bytes(const Graph& graph) {
    double sum = 0;
    for (const Node& node : graph.nodes)
      if (node.phase != Phase::update) sum += graph.cost(node).bytes;
    return sum;
  }
  static std::shared_ptr<Backend> assumed() {
    BackendOptions options;
    options.assumed_device = "sm_90";
    return open_backend("cuda", options);
  }
};

// Each layer fused or refused: the stem's convolution sums nothing (7x7 of 3 channels), the last
// block's sum feeds a pool, gradients that meet at a block's end are masked by a separate pass
// (together with the shortcut's norm, where there is one); all others are fused, and the printed
// table names the engine.
TEST_P(FusedResnet50, FusesWhatItsLibraryHasEnginesFor) {
  const auto backend = assumed();
  Graph graph = compiled(*backend, GetParam(), Precision::fp16);
  backend->choose_layouts(graph);
  std::map<std::string, int> calls;
  for (const Node& node : graph.nodes) {
    if (!is_convolution(node.op) && !is_any_of<NormFinalize, NormApply, NormGradApply, BatchNorm,
                                               BatchNormGrad, NormPool, NormPoolGrad>(node.op))
      continue;
    ++calls[what(node.op)];
    if (!is_convolution(node.op)) continue;
    const auto kernel = backend->bind(graph, node);
    EXPECT_TRUE(
        kernel->implementation().starts_with(node.scope == "conv1" ? "stem 7x7" : "cudnn engine"))
        << node.title();
    fmt::print("{:<22} {:<26} {:<24} {:8.2f} MiB  {}\n", node.scope, what(node.op),
               graph.value(node.in[0]).type.shape.text(),
               static_cast<double>(kernel->workspace_bytes()) / (1 << 20),
               kernel->implementation());
  }
  const std::map<std::string, int> expected{{"conv", 1},
                                            {"norm_pool", 1},
                                            {"norm_pool.dgrad", 1},
                                            {"norm_conv none", 52 - 32 - 15},
                                            {"norm_conv norm", 2 * 16},
                                            {"norm_conv join", 11},
                                            {"norm_conv join of two norms", 4},
                                            {"norm_finalize", 52},
                                            {"norm_apply", 1},
                                            {"norm_conv.dgrad", 2 * 16},
                                            {"norm_apply.dgrad", 2 * 16},
                                            {"batch_norm.dgrad", 53 - 32 - 4 - 1},
                                            {"conv.dgrad", 52 - 32},
                                            {"norm_conv.wgrad", 2 * 16},
                                            {"conv.wgrad", 53 - 32}};
  EXPECT_EQ(calls, expected);
}

// The saving of these four fusions in a step whose norms are fused with pointwise ops: 73.5 GB
// instead of 91.5 at 224.
TEST_P(FusedResnet50, MovesFewerBytesInFewerPasses) {
  const auto backend = assumed();
  const Graph fused = compiled(*backend, GetParam(), Precision::fp16),
              unfused = compiled(*backend, GetParam(), Precision::fp16,
                                 {"conv+statistics", "norm+conv", "join+conv", "dgrad+norm.dgrad"});
  fmt::print("{:.1f} MiB in place of {:.1f} MiB\n", bytes(fused) / (1 << 20),
             bytes(unfused) / (1 << 20));
  EXPECT_LT(bytes(fused), 0.85 * bytes(unfused));
}

// Where a shortcut has a norm, the gradient between it and the block's end is read twice less, by
// our own kernel in any precision.
TEST_P(FusedResnet50, ReadsAShortcutsGradientOnce) {
  const auto backend = assumed();
  const auto at = [&](std::int64_t divisor) { return GetParam().image / divisor; };
  const double pixels = static_cast<double>(256 * at(4) * at(4) + 512 * at(8) * at(8) +
                                            1024 * at(16) * at(16) + 2048 * at(32) * at(32));
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    const Graph together = compiled(*backend, GetParam(), precision),
                apart = compiled(*backend, GetParam(), precision, {"norm.dgrad+norm.dgrad"});
    EXPECT_EQ(apart.nodes.size() - together.nodes.size(), 4U);
    EXPECT_EQ(bytes(apart) - bytes(together),
              2 * 2 * static_cast<double>(GetParam().batch) * pixels);
  }
}

// What the stem's norm gives is neither written nor read, and so its gradient, which would be read
// twice; the pooled gradient and its index are read once more.
TEST_P(FusedResnet50, ReadsTheStemsNormThroughItsPool) {
  const auto backend = assumed();
  const auto pixels = [&](std::int64_t divisor) {
    return 64.0 * static_cast<double>(GetParam().batch * (GetParam().image / divisor) *
                                      (GetParam().image / divisor));
  };
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    const Graph together = compiled(*backend, GetParam(), precision),
                apart = compiled(*backend, GetParam(), precision, {"norm+pool"});
    EXPECT_EQ(apart.nodes.size() - together.nodes.size(), 2U);
    EXPECT_EQ(bytes(apart) - bytes(together), 5 * 2 * pixels(2) - 3 * pixels(4));
  }
}

// cuDNN computes them only in f16; in other precisions steps do not change.
TEST_P(FusedResnet50, LeavesOtherPrecisionsAlone) {
  const auto backend = assumed();
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const Node& node : compiled(*backend, GetParam(), precision).nodes)
      EXPECT_FALSE((is_any_of<NormConv, NormFinalize, NormConvDataGrad>(node.op))) << node.title();
}

std::string size_name(const Size& size) {
  return fmt::format("images_of_{}", size.image);
}

INSTANTIATE_TEST_SUITE_P(, FusedResnet50, testing::Values(Size{256, 224}, Size{128, 32}),
                         [](const auto& of) { return size_name(of.param); });
INSTANTIATE_TEST_SUITE_P(, Resnet50Plans,
                         testing::Combine(testing::Values(Size{256, 224}, Size{128, 32}),
                                          testing::Values(Precision::fp32, Precision::tf32,
                                                          Precision::bf16, Precision::fp16)),
                         [](const auto& of) {
                           return fmt::format("{}_{}", size_name(std::get<0>(of.param)),
                                              name(std::get<1>(of.param)));
                         });

}  // namespace
}  // namespace warpstep

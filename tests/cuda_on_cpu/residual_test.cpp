// A small residual network as a whole training step of the CUDA backend: batch norms with shortcuts
// and clamps, poolings and dropout between convolutions, call by call against the reference; and
// its images keep one layout from one end of a block to the other.
#include <gtest/gtest.h>

#include "engine/run/runner.h"
#include "tests/runners.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::check_runner;
using testing_support::count;
using testing_support::open_tested_backend;
using testing_support::relative_difference;
using testing_support::Stepping;

constexpr const char* backend_name = "cuda_emulated";

Tensor block(const std::string& name, Tensor x, std::int64_t width, std::int64_t stride) {
  const auto layer = [&](const std::string& suffix, Tensor in, Conv op) {
    op.bias = false;
    return batch_norm(name + ".bn" + suffix, conv(name + ".conv" + suffix, in, op));
  };
  const bool projects = stride != 1 || x.channels() != width;
  const Tensor shortcut =
      projects ? layer("0", x, {.out = width, .kernel = 1, .stride = stride, .padding = 0}) : x;
  const Tensor y = relu(layer("1", x, {.out = width, .stride = stride, .padding = 1}));
  return relu(add(layer("2", y, {.out = width, .padding = 1}), shortcut));
}

// A stem and three blocks, two of them with a projection, as ResNets are; `width` channels.
Graph residual(std::int64_t width) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {4, 32, 32, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {4}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const Conv stem{.out = width, .kernel = 7, .stride = 2, .padding = 3, .bias = false};
  Tensor x = relu(batch_norm("bn1", conv("conv1", normalize(images, half, half), stem)));
  x = max_pool(x, {.window = 3, .stride = 2, .padding = 1});
  x = block("layer1.0", x, width, 1);
  x = block("layer2.0", x, 2 * width, 2);
  x = block("layer3.0", x, 2 * width, 2);
  x = dropout(flatten(global_avg_pool(x)), 0.25);
  cross_entropy(linear("fc", x, {.out = 10}), labels);
  return g;
}

class Residual : public testing::TestWithParam<Precision> {
 protected:
  StepOptions options() const {
    StepOptions options;
    options.precision = GetParam();
    options.schedule.peak = 1e-4;
    return options;
  }
  std::unique_ptr<Stepping> stepping(const std::string& backend, std::int64_t width = 16) const {
    auto step = std::make_unique<Stepping>(compile_step(residual(width), options()),
                                           open_tested_backend(backend));
    step->program.store().initialize(1);
    return step;
  }
};

std::vector<float> buffers(const Stepping& step) {
  std::vector<float> all;
  const Store& store = step.program.store();
  for (std::size_t b = 0; b < store.buffers().size(); ++b)
    for (const float number : store.read_buffer(b)) all.push_back(number);
  return all;
}

TEST_P(Residual, AgreesWithTheReferenceCallByCall) {
  const auto ours = stepping(backend_name), theirs = stepping("ref");
  const std::vector<float> before = buffers(*ours);
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step, step == 1);
    theirs->load(step, step == 1);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
  EXPECT_GT(relative_difference(buffers(*ours), before), 0.01);
  EXPECT_LT(relative_difference(buffers(*ours), buffers(*theirs)),
            GetParam() == Precision::fp32 ? 1e-4 : 2e-2);
}

TEST_P(Residual, OneGraphLaunchGivesTheBitsOfItsCalls) {
  const auto run = [&](Stepping& step, Runner& runner) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      step.load(i);
      runner.step();
      step.program.wait();
    }
    return std::pair{step.parameters(), buffers(step)};
  };
  const auto calls = stepping(backend_name), graph = stepping(backend_name);
  const auto eager = eager_runner(calls->program), replay = graph_runner(graph->program);
  EXPECT_EQ(run(*calls, *eager), run(*graph, *replay));
}

// Fusions leave one pass for the end of a block, and no other layout in between. Where the last
// channels are padded, the flattened value between the pool and the linear layer is plain, and so
// is its gradient.
TEST_P(Residual, KeepsItsImagesStoredAsTheyAre) {
  const std::int64_t vector = GetParam() == Precision::fp32 ? 4 : 8;
  for (const std::int64_t width : {16, 20, 5}) {
    const auto step = stepping(backend_name, width);
    const Graph& graph = step->program.graph();
    EXPECT_EQ(count<Reorder>(graph), 2 * width % vector == 0 ? 0 : 4) << width;
    EXPECT_EQ(count<Relu>(graph), 0);
    EXPECT_EQ(count<BatchNorm>(graph), 9);
  }
}

TEST_P(Residual, StoresAllOfAParameterAlike) {
  const auto step = stepping(backend_name, 5);
  const Graph& graph = step->program.graph();
  for (const Parameter& parameter : graph.parameters) {
    const std::string& tag = graph.value(parameter.value).layout.tag;
    if (parameter.name.find(".bn") != std::string::npos) {
      EXPECT_NE(tag, "") << parameter.name;
    }
    std::vector<int> kept{parameter.gradient};
    kept.insert(kept.end(), parameter.moments.begin(), parameter.moments.end());
    if (parameter.copy >= 0) kept.push_back(parameter.copy);
    for (const int id : kept) EXPECT_EQ(graph.value(id).layout.tag, tag) << graph.value(id).name;
  }
  for (const Buffer& buffer : graph.buffers)
    EXPECT_EQ(graph.value(buffer.value).layout.tag, "") << buffer.name;
}

INSTANTIATE_TEST_SUITE_P(, Residual,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& of) { return std::string(name(of.param)); });

std::vector<float> all_parameters(const Stepping& step) {
  std::vector<float> all;
  for (const std::vector<float>& one : step.parameters())
    all.insert(all.end(), one.begin(), one.end());
  return all;
}

// The network of bottlenecks, whose norms f16 fuses into the neighbouring convolutions.
std::unique_ptr<Stepping> bottlenecks(const std::string& backend, bool fused,
                                      Precision precision = Precision::fp16) {
  StepOptions options;
  options.precision = precision;
  options.schedule.peak = 1e-3;
  const auto cuda = open_tested_backend(backend_name);
  if (fused) options = options_for(*cuda, options);
  auto step = std::make_unique<Stepping>(compile_step(testing_support::residual(), options),
                                         backend == backend_name ? cuda : open_backend(backend));
  step->program.store().initialize(1);
  return step;
}

TEST(FusedNorms, AgreeWithTheReferenceCallByCall) {
  const auto ours = bottlenecks(backend_name, true), theirs = bottlenecks("ref", true);
  const Graph& graph = ours->program.graph();
  EXPECT_EQ(count<NormConv>(graph), 7) << "all but the stem";
  EXPECT_EQ(count<NormApply>(graph), 1) << "the network's end";
  EXPECT_EQ(count<NormPool>(graph), 1) << "the stem's";
  EXPECT_EQ(count<NormPoolGrad>(graph), 1);
  EXPECT_EQ(count<BatchNorm>(graph), 0);
  EXPECT_EQ(count<NormConvDataGrad>(graph), 4);
  EXPECT_EQ(count<BatchNormGrad>(graph), 2) << "two blocks' ends";
  EXPECT_EQ(count<NormConvWeightGrad>(graph), 4);
  EXPECT_EQ(count<Reorder>(graph), 0);
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step, step == 1);
    theirs->load(step, step == 1);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
  EXPECT_LT(relative_difference(buffers(*ours), buffers(*theirs)), 2e-2);
}

// A separate norm rounds once, at its output; a fused one rounds its scale, its bias and the
// convolution's input: the error is at most three times as large.
TEST(FusedNorms, TrainAsNormsByThemselvesDo) {
  const auto fused = bottlenecks(backend_name, true), apart = bottlenecks(backend_name, false),
             exact = bottlenecks(backend_name, false, Precision::fp32);
  EXPECT_EQ(count<NormConv>(apart->program.graph()), 0);
  for (Stepping* step : {fused.get(), apart.get(), exact.get()}) {
    const auto runner = graph_runner(step->program);
    for (std::uint64_t i = 0; i < 4; ++i) {
      step->load(i);
      runner->step();
      step->program.wait();
    }
  }
  const auto apart_from_exact = [&](const Stepping& step, auto all) {
    return relative_difference(all(step), all(*exact));
  };
  EXPECT_LT(apart_from_exact(*fused, all_parameters), 3 * apart_from_exact(*apart, all_parameters));
  EXPECT_LT(apart_from_exact(*fused, buffers), 3 * apart_from_exact(*apart, buffers));
}

}  // namespace
}  // namespace warpstep

// The losses of the reference and of the CPU against PyTorch's numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/passes/fuse.h"
#include "engine/run/program.h"

namespace warpstep {
namespace {

// torch 2.15: torch.nn.functional.cross_entropy(x, y, weight=w, label_smoothing=s, ignore_index=-1)
// in float64 and x.grad, or nll_loss where it is raw.
struct Expected {
  double smoothing;
  std::vector<float> weights;
  bool raw;
  double loss;
  std::vector<double> gradient;
};
const std::vector<float> x{0.5F, -1, 2, 1.5F, 0.25F, -0.5F, -2, 1, 0, 0, 0.75F, -1.25F};
const std::vector<std::int32_t> y{2, 0, -1, 1};
const std::vector<float> w{0.5F, 2, 1.25F};
std::vector<Expected> losses() {
  std::vector<Expected> all;
  const auto add = [&](double smoothing, const std::vector<float>& weights, bool raw, double loss,
                       const std::vector<double>& gradient) {
    all.push_back({smoothing, weights, raw, loss, gradient});
  };
  add(0, {}, false, 0.35602296287875784,
      {0.05843013071334556, 0.013037524423562482, -0.07146765513690803, -0.09889534132607536,
       0.0671676092763503, 0.031727732049724996, 0, 0, 0, 0.09793825823716315, -0.12599803901824247,
       0.02805978078107927});
  add(0.1, {}, false, 0.47268962954542454,
      {0.04731901960223445, 0.0019264133124513708, -0.04924543291468584, -0.07667311910385312,
       0.05605649816523921, 0.02061662093861389, 0, 0, 0, 0.08682714712605206, -0.10377581679602023,
       0.016948669669968164});
  add(0, w, false, 0.3805937357534604,
      {0.05843013071334556, 0.013037524423562482, -0.07146765513690803, -0.039558136530430145,
       0.026867043710540123, 0.012691092819889999, 0, 0, 0, 0.15670121317946106,
       -0.20159686242918795, 0.04489564924972683});
  add(0.25, w, false, 0.6994510425347846,
      {0.04731901960223446, -0.031406920020881954, -0.01591209958135247, 0.01782978449288078,
       -0.007502259342451765, -0.010327525150429027, 0, 0, 0, 0.1308993633327755,
       -0.1438082676875627, 0.012908904354787174});
  add(0, {}, true, -1.4166666666666667, {});
  add(0, w, true, -1.2666666666666666, {});
  add(0.1, {0, 0, 0}, false, 0, std::vector<double>(12));  // PyTorch: NaN
  return all;
}

// The loss of x + offset and y, by its ops or in one; in one also the gradient.
std::vector<double> computed(const std::shared_ptr<Backend>& backend, const LossOptions& options,
                             bool fused, float offset) {
  Graph graph;
  const Tensor logits = graph.input("x", {DType::f32, {4, 3}});
  const Tensor labels = graph.input("y", {DType::i32, {4}});
  cross_entropy(logits, labels, {}, options);
  if (fused) graph = fuse(std::move(graph), FuseStage::forward, {});
  const int gradient = fused && !options.raw ? graph.nodes.back().out.at(2) : -1;
  Program program(std::move(graph), backend);
  program.store().initialize(0);
  const Graph& g = program.graph();
  std::vector<std::shared_ptr<std::byte>> slots;
  std::vector<const void*> addresses;
  for (const int id : g.inputs) {
    slots.push_back(backend->allocate(g.value(id).layout.bytes));
    addresses.push_back(slots.back().get());
  }
  program.set_inputs(addresses);
  std::vector<float> shifted = x;
  for (float& value : shifted) value += offset;
  backend->write(g.value(g.inputs[0]), slots[0].get(), std::as_bytes(std::span(shifted)));
  backend->write(g.value(g.inputs[1]), slots[1].get(), std::as_bytes(std::span(y)));
  for (std::size_t call = 0; call < program.calls().size(); ++call) program.enqueue(call);
  std::vector<double> all{static_cast<double>(program.loss())};
  if (gradient >= 0)
    for (const float d : program.read(gradient)) all.push_back(static_cast<double>(d));
  return all;
}

class LossOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, LossOn, testing::Values("ref", "cpu"));

TEST_P(LossOn, IsPyTorchs) {
  const auto backend = open_backend(GetParam(), {.threads = 2});
  for (const Expected& expected : losses())
    for (const bool fused : {false, true}) {
      LossOptions options;
      options.label_smoothing = expected.smoothing;
      options.class_weights = expected.weights;
      options.raw = expected.raw;
      const std::vector<double> found = computed(backend, options, fused, 0);
      EXPECT_NEAR(found[0], expected.loss, 2e-7);
      for (std::size_t i = 1; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected.gradient[i - 1], 1e-7) << "element " << i - 1;
    }
}

// The digits of large logits are not those of the loss: x + 4096 is exact.
TEST_P(LossOn, IsThatOfLogitsWithoutTheirOffset) {
  const auto backend = open_backend(GetParam(), {.threads = 2});
  for (const Expected& expected : losses())
    for (const bool fused : {false, true}) {
      if (expected.raw) continue;
      LossOptions options;
      options.label_smoothing = expected.smoothing;
      options.class_weights = expected.weights;
      EXPECT_NEAR(computed(backend, options, fused, 4096)[0], expected.loss, 3e-7) << fused;
    }
}

TEST(ClassWeights, ThatTheLossCannotDivideByAreRefused) {
  const auto refusal = [](std::vector<float> weights) -> std::string {
    Graph graph;
    const Tensor logits = graph.input("x", {DType::f32, {4, 3}});
    const Tensor labels = graph.input("y", {DType::i32, {4}});
    try {
      cross_entropy(logits, labels, {}, {.class_weights = std::move(weights)});
      return {};
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal({0, 1e-30F, 1e30F}), "");
  EXPECT_EQ(refusal({1, 2}), "class weights: there are 2, but 3 classes; give one per class");
  for (const float weight : {-1.0F, 1e-38F, 1e38F, std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(refusal({1, weight, 1}),
              fmt::format("class weight {}: must be 0 or from 1e-30 to 1e30", weight));
}

}  // namespace
}  // namespace warpstep

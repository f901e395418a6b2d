// The table of fusions: each row leaves the step's result alone, and finds what it is for.
#include "engine/fuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::count;
using testing_support::model_step;
using testing_support::Stepping;
using testing_support::two_branches;

std::vector<AnyOp> ops(const Graph& graph) {
  std::vector<AnyOp> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  return ops;
}

class FusionOf : public testing::TestWithParam<FusionRow> {};

struct Tried {
  const char* model;
  Optimizer::Kind optimizer;
};

// Steps of the reference backend, where a fusion may change nothing but the order of a few double
// additions.
TEST_P(FusionOf, LeavesTheStepsResultAlone) {
  for (const Tried& tried :
       {Tried{"cifar10cnn", Optimizer::Kind::sgd}, Tried{"mlp", Optimizer::Kind::adam}}) {
    StepOptions fused, unfused;
    fused.optimizer.kind = unfused.optimizer.kind = tried.optimizer;
    fused.schedule.peak = unfused.schedule.peak = 1e-2;
    unfused.no_fuse.emplace(GetParam().name);
    Stepping with(model_step(tried.model, 2, fused), open_backend("ref"));
    Stepping without(model_step(tried.model, 2, unfused), open_backend("ref"));
    const bool of_images = GetParam().name == "relu+pool" || GetParam().name == "conv+relu" ||
                           GetParam().name == "dgrad+bias";
    const bool applies = std::string_view(tried.model) == "cifar10cnn" || !of_images;
    EXPECT_EQ(ops(with.program.graph()) != ops(without.program.graph()), applies);
    EXPECT_LE(with.program.calls().size(), without.program.calls().size());
    for (Stepping* one : {&with, &without}) one->program.store().initialize(5);
    for (std::uint64_t step = 0; step < 2; ++step) {
      for (Stepping* one : {&with, &without}) {
        one->load(step, step == 1);
        for (std::size_t c = 0; c < one->program.calls().size(); ++c) one->program.enqueue(c);
      }
      EXPECT_EQ(with.program.correct(), without.program.correct());
      const auto exact_loss = [](const Stepping& one) {
        return *static_cast<const double*>(one.program.address(one.program.graph().loss));
      };
      EXPECT_NEAR(exact_loss(with), exact_loss(without), 1e-12 * exact_loss(without));
    }
    EXPECT_EQ(with.parameters(), without.parameters()) << "as floats";
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FusionOf,
                         testing::ValuesIn(fusion_table().begin(), fusion_table().end()),
                         [](const auto& tested) {
                           std::string name(tested.param.name);
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '+' || c == '.'; }, '_');
                           return name;
                         });

TEST(Fuse, RefusesARowThatItDoesNotHave) {
  EXPECT_THAT(
      [] {
        fuse({}, {true, {"conv+rleu"}});
      },
      ThrowsMessage<UsageError>("no fusion is called 'conv+rleu'; there are relu+pool, "
                                "conv+relu, linear+relu, softmax+xent, dgrad+bias, "
                                "linear.dgrad+relu, updates"));
}

TEST(Fuse, LeavesAValueAloneThatSomethingElseReads) {
  const Graph g = fuse(two_branches(), {});
  EXPECT_EQ(count<Relu>(g), 1) << "the sum reads the convolution's plain output";
  for (const Node& node : g.nodes)
    if (const auto* conv = std::get_if<Conv>(&node.op)) {
      EXPECT_FALSE(conv->relu);
    }
}

TEST(Fuse, MakesTheStepsThatItPromises) {
  const Graph g = model_step("cifar10cnn", 2);
  EXPECT_EQ(count<Relu>(g), 0);
  EXPECT_EQ(count<LogSoftmax>(g) + count<Nll>(g) + count<Top1>(g), 0);
  EXPECT_EQ(count<SoftmaxXent>(g), 1);
  EXPECT_EQ(count<UpdateAll>(g), 1);
  EXPECT_EQ(count<Update>(g), 0);
  for (const Node& node : g.nodes) {
    const auto* wgrad = std::get_if<ConvWeightGrad>(&node.op);
    EXPECT_FALSE(wgrad && wgrad->conv.bias) << node.title();
    const auto* linear = std::get_if<LinearWeightGrad>(&node.op);
    EXPECT_EQ(linear && linear->bias, node.title() == "fc2/linear.wgrad") << node.title();
  }
  for (const Parameter& parameter : g.parameters) {
    const int writer = g.producers()[idx(parameter.gradient)];
    ASSERT_GE(writer, 0) << parameter.name;
    EXPECT_EQ(g.value(parameter.gradient).name, "d_" + parameter.name);
  }
}

// Two layers whose outputs are added have one d_z: its writer gives the gradient of one bias, and
// the other layer gives its own.
TEST(FuseGradients, SumsTheColumnsOfAValueOnce) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {4, 6, 6, 2}});
  const Tensor labels = g.input("labels", {DType::i32, {4}});
  const std::vector<float> half{0.5F, 0.5F};
  const Tensor x = normalize(images, half, half);
  const Tensor h = relu(add(conv("a", x, {.out = 3}), conv("b", x, {.out = 3})));
  cross_entropy(linear("fc", flatten(h), {.out = 10}), labels);
  const Graph fused = fuse_gradients(differentiate(g), {});
  int summed = 0, with_bias = 0;
  for (const Node& node : fused.nodes) {
    const auto* relu = std::get_if<ReluGrad>(&node.op);
    const auto* wgrad = std::get_if<ConvWeightGrad>(&node.op);
    summed += relu && relu->bias_gradient ? 1 : 0;
    with_bias += wgrad && wgrad->conv.bias ? 1 : 0;
    EXPECT_EQ(infer(node.op, fused.types(node.in)), fused.types(node.out)) << node.title();
  }
  EXPECT_EQ(summed, 1);
  EXPECT_EQ(with_bias, 1);
}

}  // namespace
}  // namespace warpstep

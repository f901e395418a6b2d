// The table of fusions: each row leaves the step's result alone, and finds what it is for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/fuse.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"
#include "tests/tolerance.h"

namespace warpstep {
namespace {

using testing::ThrowsMessage;
using testing_support::all_numbers;
using testing_support::count;
using testing_support::model_step;
using testing_support::relative_difference;
using testing_support::residual;
using testing_support::Stepping;
using testing_support::texts;
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

Graph step_of(const Tried& tried, StepOptions options) {
  options.optimizer.kind = tried.optimizer;
  options.schedule.peak = 1e-2;
  options.computes = [](const AnyOp&, const Types&) { return true; };
  if (std::string_view(tried.model) == "residual")
    return compile_step(residual({.batch = 2, .size = 16}), options);
  return model_step(tried.model, 2, options);
}

// What each row finds something in.
bool applies(std::string_view row, std::string_view model) {
  const std::set<std::string_view> of_convolutions{"relu+pool", "conv+relu", "dgrad+bias",
                                                   "conv+pool", "conv.dgrad+relu"},
      of_norms{"norm+relu", "norm+add+relu", "add+norm.dgrad",   "conv+statistics",
               "norm+conv", "join+conv",     "dgrad+norm.dgrad", "norm.dgrad+norm.dgrad",
               "norm+pool"},
      of_residual{"relu+pool", "softmax+xent", "updates"},
      of_text{"add+layer_norm", "softmax+xent", "updates"},
      of_gelu{"linear+gelu", "linear.dgrad+gelu"};  // with tanh and biases: GPT-2's
  if (model == "residual") return of_norms.contains(row) || of_residual.contains(row);
  // Layer norms' adjoints give the bias gradients of what comes before them.
  if (model == "gpt2") return of_text.contains(row) || of_gelu.contains(row) || row == "dgrad+bias";
  if (model == "gpt2-nano") return of_text.contains(row);
  if (row == "add+layer_norm" || of_gelu.contains(row)) return false;
  if (model == "mlp" && of_convolutions.contains(row)) return false;
  return !of_norms.contains(row);
}

// Steps of the reference backend, where a fusion may change nothing but the order of a few double
// additions.
TEST_P(FusionOf, LeavesTheStepsResultAlone) {
  for (const Tried& tried :
       {Tried{"cifar10cnn", Optimizer::Kind::sgd}, Tried{"mlp", Optimizer::Kind::adam},
        Tried{"residual", Optimizer::Kind::sgd}, Tried{"gpt2-nano", Optimizer::Kind::adam},
        Tried{"gpt2", Optimizer::Kind::adam}}) {
    StepOptions fused, unfused;
    unfused.no_fuse.emplace(GetParam().name);
    if (GetParam().name == fusion::dgrad_bias)  // undone where no adjoint of a relu is left
      for (StepOptions* options : {&fused, &unfused})
        options->no_fuse.emplace(fusion::conv_dgrad_relu);
    if (GetParam().name == fusion::norm_pool)  // of a norm whose convolution does not sum for it
      for (StepOptions* options : {&fused, &unfused})
        options->no_fuse.emplace(fusion::conv_statistics);
    const Graph one_graph = step_of(tried, fused), other_graph = step_of(tried, unfused);
    const bool finds = applies(GetParam().name, tried.model);
    ASSERT_EQ(ops(one_graph) != ops(other_graph), finds) << tried.model;
    if (!finds) continue;  // one step
    Stepping with(one_graph, open_backend("ref")), without(other_graph, open_backend("ref"));
    if (GetParam().name != "conv+statistics") {  // two calls for one that launched two kernels
      EXPECT_LE(with.program.calls().size(), without.program.calls().size());
    }
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
    // As floats, in which dust of about 1e-18 is what is left of numbers that cancel.
    EXPECT_LE(relative_difference(all_numbers(with), all_numbers(without)), 1e-8);
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
        fuse({}, FuseStage::forward, {true, {"conv+rleu"}});
      },
      ThrowsMessage<UsageError>(
          "no fusion is called 'conv+rleu'; there are relu+pool, "
          "conv+relu, linear+relu, linear+gelu, norm+relu, norm+add+relu, add+layer_norm, "
          "softmax+xent, "
          "add+norm.dgrad, "
          "linear.dgrad+relu, linear.dgrad+gelu, dgrad+bias, updates, conv+pool, conv.dgrad+relu, "
          "conv+statistics, "
          "dgrad+norm.dgrad, norm.dgrad+norm.dgrad, norm+pool, norm+conv, join+conv"));
}

TEST(Fuse, LeavesAValueAloneThatSomethingElseReads) {
  const Graph g = fuse(two_branches(), FuseStage::forward, {});
  EXPECT_EQ(count<Relu>(g), 1) << "the sum reads the convolution's plain output";
  for (const Node& node : g.nodes)
    if (const auto* conv = std::get_if<Conv>(&node.op)) {
      EXPECT_FALSE(conv->relu);
    }
}

// A block whose two branches normalise one sum, as GPT-NeoX's.
TEST(Fuse, MakesASumInOneOfTwoLayerNorms) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6}});
  const Tensor sum = add(linear("a", x, {.out = 8}), linear("b", x, {.out = 8}));
  const Tensor left = linear("l", layer_norm("l.norm", sum), {.out = 8});
  const Tensor right = linear("r", layer_norm("r.norm", sum), {.out = 8});
  const Tensor y = add(sum, add(left, right));
  cross_entropy(linear("head", y, {.out = 10}), g.input("labels", {DType::i32, {4}}));
  const Graph fused = fuse(std::move(g), FuseStage::forward, {});
  std::vector<int> made(fused.values.size());
  int sums = 0;
  for (const Node& node : fused.nodes) {
    for (const int id : node.out) EXPECT_EQ(++made[idx(id)], 1) << fused.value(id).name;
    const auto* norm = std::get_if<LayerNorm>(&node.op);
    sums += norm && norm->add ? 1 : 0;
  }
  EXPECT_EQ(sums, 1);
}

// The norm would make the sum too late.
TEST(Fuse, MakesNoSumInALayerNormThatComesAfterAnotherReader) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6}});
  const Tensor sum = add(linear("a", x, {.out = 8}), linear("b", x, {.out = 8}));
  const Tensor gate = gelu(sum);
  const Tensor y = add(gate, layer_norm("norm", sum));
  cross_entropy(linear("head", y, {.out = 10}), g.input("labels", {DType::i32, {4}}));
  const Graph fused = fuse(std::move(g), FuseStage::forward, {});
  EXPECT_EQ(count<Add>(fused), 2);
  for (const Node& node : fused.nodes)
    if (const auto* norm = std::get_if<LayerNorm>(&node.op)) {
      EXPECT_FALSE(norm->add);
    }
}

// The exact form has no epilogue, and without a bias there is nothing to sum; an evaluation does
// not keep what the unit reads.
TEST(Fuse, GivesLinearLayersOnlyTheGeluWithTanh) {
  const auto texts_of = [](bool tanh, bool bias, bool training) {
    Graph g;
    const Tensor x = g.input("x", {DType::f32, {4, 6}});
    const Tensor h = gelu(linear("a", x, {.out = 8, .bias = bias}), {.tanh = tanh});
    cross_entropy(linear("b", h, {.out = 10}), g.input("labels", {DType::i32, {4}}));
    return texts(fuse(std::move(g), FuseStage::forward, {.training = training}), "linear");
  };
  EXPECT_EQ(texts_of(true, true, true)[0], "a: +bias +gelu +z");
  EXPECT_EQ(texts_of(true, true, false)[0], "a: +bias +gelu");
  EXPECT_EQ(texts_of(false, true, true)[0], "a: +bias");
  EXPECT_EQ(texts_of(true, false, true)[0], "a: ");
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
  const Graph fused = fuse(differentiate(g), FuseStage::backward, {});
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

// Where no product takes the GELU's adjoint, that sums the bias gradient of the layer before it.
TEST(FuseGradients, SumsTheColumnsOfAGelusAdjoint) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6}});
  const Tensor labels = g.input("labels", {DType::i32, {4}});
  const Tensor h = gelu(linear("fc1", x, {.out = 8}), {.tanh = true});
  cross_entropy(linear("fc2", h, {.out = 10}), labels);
  const auto gelus = [&](const std::set<std::string, std::less<>>& disabled) {
    return texts(fuse(differentiate(g), FuseStage::backward, {true, disabled}), "gelu.dgrad");
  };
  EXPECT_EQ(gelus({}), std::vector<std::string>{});
  EXPECT_EQ(gelus({"linear.dgrad+gelu"}), std::vector<std::string>{"fc1: tanh +bias"});
  EXPECT_EQ(gelus({"linear.dgrad+gelu", "dgrad+bias"}), std::vector<std::string>{"fc1: tanh"});
}

// The stem's relu goes into the pool; the first block's end adds the shortcut's norm, which is
// ready before, the second's what came into the block.
TEST(FuseNorms, MakesAResidualNetworksBlocks) {
  const Graph fused = fuse(residual(), FuseStage::forward, {});
  EXPECT_EQ(count<Relu>(fused) + count<Add>(fused), 0);
  EXPECT_EQ(texts(fused, "batch_norm"),
            (std::vector<std::string>{
                "stem.bn: ", "block1.conv1.bn: +relu", "block1.conv2.bn: +relu",
                "block1.shortcut.bn: ", "block1.conv3.bn: +add +relu", "block2.conv1.bn: +relu",
                "block2.conv2.bn: +relu", "block2.conv3.bn: +add +relu"}));
  const Graph g = fuse(differentiate(fused), FuseStage::backward, {});
  // Only the pool's output has two users whose gradients no norm takes.
  EXPECT_EQ(count<Add>(g), 1);
  EXPECT_EQ(texts(g, "batch_norm.dgrad"),
            (std::vector<std::string>{"block2.conv3.bn: +add +relu", "block2.conv2.bn: +relu",
                                      "block2.conv1.bn: +relu", "block1.conv3.bn: +add +relu +sum",
                                      "block1.shortcut.bn: ", "block1.conv2.bn: +relu",
                                      "block1.conv1.bn: +relu", "stem.bn: "}));
  for (const Node& node : g.nodes)
    EXPECT_EQ(infer(node.op, g.types(node.in)), g.types(node.out)) << node.title();
}

// A norm whose output something else reads stays as it is, and one that adds already adds no more.
TEST(FuseNorms, LeavesAValueAloneThatSomethingElseReads) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6, 6, 2}});
  const Tensor a = batch_norm("a", x);
  const Tensor b = relu(add(batch_norm("b", a), a));
  cross_entropy(linear("fc", flatten(add(relu(a), b)), {.out = 10}),
                g.input("labels", {DType::i32, {4}}));
  const Graph fused = fuse(std::move(g), FuseStage::forward, {});
  EXPECT_EQ(texts(fused, "batch_norm"), (std::vector<std::string>{"a: ", "b: +add +relu"}));
  EXPECT_EQ(count<Relu>(fused), 1);
}

// The sum is of what the norm's own relu leaves.
TEST(FuseNorms, AddsNothingInANormWithARelu) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6, 6, 2}});
  const Tensor h = relu(add(relu(batch_norm("a", x)), x));
  cross_entropy(linear("fc", flatten(h), {.out = 10}), g.input("labels", {DType::i32, {4}}));
  const Graph fused = fuse(std::move(g), FuseStage::forward, {});
  EXPECT_EQ(texts(fused, "batch_norm"), (std::vector<std::string>{"a: +relu"}));
  EXPECT_EQ(count<Add>(fused), 1);
  EXPECT_EQ(count<Relu>(fused), 1);
}

}  // namespace
}  // namespace warpstep

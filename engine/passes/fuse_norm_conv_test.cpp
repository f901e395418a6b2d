// Convolutions and batch norms in one call: which are made, and that the step stays what it was
// (fuse_test.cpp has each row by itself).

#include <gtest/gtest.h>

#include "engine/passes/fuse_norm_conv.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"
#include "tests/tolerance.h"

namespace warpstep {
namespace {

using testing_support::all_numbers;
using testing_support::count;
using testing_support::relative_difference;
using testing_support::residual;
using testing_support::Stepping;
using testing_support::texts;

// All that a library could be asked for: the pool's output is made by a norm of its own, as is what
// ends the last block; gradients that meet at a block's end are the norm's own affair.
TEST(FuseNormConv, MakesAResidualNetworksBlocks) {
  StepOptions options;
  options.computes = [](const AnyOp&, const Types&) { return true; };
  const Graph g = compile_step(residual(), options);
  EXPECT_EQ(
      texts(g, "norm_conv"),
      (std::vector<std::string>{"stem: 7x7 s2 p3 +statistics", "block1.conv1: 1x1 +statistics",
                                "block1.conv2: 3x3 s2 p1 norm in front, +statistics",
                                "block1.conv3: 1x1 norm in front, +statistics",
                                "block1.shortcut: 1x1 s2 +statistics",
                                "block2.conv1: 1x1 join of two norms in front, +statistics",
                                "block2.conv2: 3x3 p1 norm in front, +statistics",
                                "block2.conv3: 1x1 norm in front, +statistics"}));
  EXPECT_EQ(texts(g, "norm_apply"),
            (std::vector<std::string>{"stem.bn: ", "block2.conv3.bn: +add +relu"}));
  EXPECT_EQ(texts(g, "norm_conv.dgrad").size(), 4U);
  EXPECT_EQ(texts(g, "norm_conv.wgrad").size(), 4U);
  EXPECT_EQ(texts(g, "batch_norm.dgrad"),
            (std::vector<std::string>{"block2.conv3.bn: +add +relu",
                                      "block1.conv3.bn: +add +relu +sum +norm", "stem.bn: "}));
  EXPECT_EQ(count<BatchNorm>(g), 0);
  for (const Node& node : g.nodes)
    EXPECT_EQ(infer(node.op, g.types(node.in)), g.types(node.out)) << node.title();
}

// What is refused stays as it was, whatever else is computed.
TEST(FuseNormConv, AsksForEachPlace) {
  const auto made = [](auto refuses) {
    StepOptions options;
    options.computes = [&](const AnyOp& op, const Types&) { return !refuses(op); };
    return compile_step(residual(), options);
  };
  const auto prologue_is = [](Prologue prologue) {
    return [prologue](const AnyOp& op) {
      const auto* conv = std::get_if<NormConv>(&op);
      return conv && conv->prologue == prologue;
    };
  };
  const Graph alone = made(prologue_is(Prologue::none));
  EXPECT_EQ(count<NormConv>(alone) + count<NormFinalize>(alone) + count<NormApply>(alone), 0);
  EXPECT_EQ(count<NormConvDataGrad>(alone), 4) << "its mask is made of the plain norm's statistics";
  const Graph no_prologue = made(prologue_is(Prologue::norm));
  EXPECT_EQ(count<NormApply>(no_prologue), 6);
  EXPECT_EQ(count<NormConvWeightGrad>(no_prologue), 0);
  const Graph one_norm = made(prologue_is(Prologue::join_norms));
  EXPECT_EQ(texts(one_norm, "norm_apply"),
            (std::vector<std::string>{
                "stem.bn: ", "block1.shortcut.bn: ", "block2.conv3.bn: +add +relu"}));
  const Graph no_wgrad =
      made([](const AnyOp& op) { return std::holds_alternative<NormConvWeightGrad>(op); });
  EXPECT_EQ(count<NormApply>(no_wgrad), 6) << "the weight gradient reads what the norm gives";
  const Graph no_dgrad =
      made([](const AnyOp& op) { return std::holds_alternative<NormConvDataGrad>(op); });
  EXPECT_EQ(count<BatchNormGrad>(no_dgrad), 7);
  EXPECT_EQ(count<NormApply>(no_dgrad), 6) << "the norm's gradient reads its mask from it";
}

// The bytes of an end with a norm on both sides: of thirteen passes over an image eleven are left.
TEST(FuseNormConv, ReadsASharedGradientOnce) {
  const auto bytes = [](bool together) {
    StepOptions options;
    options.computes = [=](const AnyOp& op, const Types&) {
      return together && std::holds_alternative<BatchNormGrad>(op);
    };
    const Graph g = compile_step(residual(), options);
    double sum = 0;
    for (const Node& node : g.nodes)
      if (std::holds_alternative<BatchNormGrad>(node.op) && node.scope.starts_with("block1."))
        if (node.scope.ends_with("conv3.bn") || node.scope.ends_with("shortcut.bn"))
          sum += g.cost(node).bytes;
    return sum;
  };
  constexpr double image = 4 * 4 * 4 * 32 * sizeof(float), channels = 32 * sizeof(float);
  EXPECT_EQ(bytes(false), 13 * image + 10 * channels);
  EXPECT_EQ(bytes(true), 11 * image + 10 * channels);
}

// What is made again for the backward half has a norm of its own, which moves no statistics.
TEST(FuseNormConv, GoesWithRecomputedScopes) {
  const auto numbers = [](bool fused) {
    StepOptions options;
    options.optimizer.kind = Optimizer::Kind::sgd;
    options.schedule.peak = 1e-2;
    options.recompute = {"block1"};
    if (fused) options.computes = [](const AnyOp&, const Types&) { return true; };
    Stepping step(compile_step(residual({.batch = 2, .size = 16}), options), open_backend("ref"));
    EXPECT_EQ(count<NormConv>(step.program.graph()) > 8, fused) << "those of block1 twice";
    step.program.store().initialize(5);
    for (std::uint64_t i = 0; i < 2; ++i) {
      step.load(i);
      for (std::size_t c = 0; c < step.program.calls().size(); ++c) step.program.enqueue(c);
    }
    return all_numbers(step);
  };
  EXPECT_LE(relative_difference(numbers(true), numbers(false)), 1e-8);
}

// A scope that ends in a norm and its relu: what it reads is made again after the data gradient of
// the convolution outside, which cannot read it then.
TEST(FuseNormConv, LeavesAGradientAloneThatComesBeforeWhatItWouldRead) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {2, 8, 8, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  Tensor x = normalize(images, half, half);
  for (const char* scope : {"a", "b", "c"}) {
    x = conv(std::string(scope) + ".conv", x, {.out = 8, .padding = 1, .bias = false});
    x = relu(batch_norm(std::string(scope) + ".bn", x));
  }
  cross_entropy(linear("fc", flatten(x), {.out = 10}), labels);
  StepOptions options;
  options.computes = [](const AnyOp&, const Types&) { return true; };
  EXPECT_EQ(count<NormConvDataGrad>(compile_step(g, options)), 2);
  options.recompute = {"b"};
  EXPECT_EQ(count<NormConvDataGrad>(compile_step(g, options)), 1);
}

}  // namespace
}  // namespace warpstep

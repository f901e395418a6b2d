// The passes that turn a model into a step: differentiate, precision, schedule; fuse_test.cpp has
// the fusions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/core/error.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/compile.h"
#include "engine/passes/schedule.h"
#include "engine/passes/statistics.h"
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

std::set<std::string, std::less<>> all_rows() {
  std::set<std::string, std::less<>> names;
  for (const FusionRow& row : fusion_table()) names.emplace(row.name);
  return names;
}

TEST(CompileStep, RefusesToTrainNothing) {
  Graph g;
  cross_entropy(g.input("x", {DType::f32, {4, 10}}), g.input("labels", {DType::i32, {4}}));
  EXPECT_THAT([&] { compile_step(g, {}); }, ThrowsMessage<UsageError>(HasSubstr("no parameters")));
  EXPECT_NO_THROW(compile_step(g, {.training = false}));
}

// ---- differentiate

TEST(Differentiate, AddsTheGradientsOfAValueThatIsUsedTwice) {
  const Graph g = differentiate(two_branches());
  EXPECT_EQ(std::count_if(g.nodes.begin(), g.nodes.end(),
                          [](const Node& node) {
                            return std::holds_alternative<Add>(node.op) &&
                                   node.phase == Phase::data_grad;
                          }),
            1);
  EXPECT_EQ(count<ConvDataGrad>(g), 0) << "nothing asks for the images' gradient";
  for (const Parameter& parameter : g.parameters) {
    const Value& gradient = g.value(parameter.gradient);
    EXPECT_EQ(gradient.role, Role::gradient);
    EXPECT_EQ(gradient.name, "d_" + parameter.name);
    EXPECT_EQ(gradient.type.shape, g.value(parameter.value).type.shape);
  }
}

// The whole backward half against central differences of the loss, in double.
void expect_slope(const Graph& model) {
  for (const auto& disabled : {std::set<std::string, std::less<>>{}, all_rows()}) {
    StepOptions options;
    options.no_fuse = disabled;
    options.optimizer.kind = Optimizer::Kind::sgd;
    options.schedule.peak = 0;  // the update leaves the parameters alone
    Stepping step(compile_step(model, options), open_backend("ref"));
    step.load(1);
    step.program.store().initialize(1);
    const auto loss = [&] {
      for (std::size_t call = 0; call < step.program.calls().size(); ++call)
        step.program.enqueue(call);
      return *static_cast<const double*>(step.program.address(step.program.graph().loss));
    };
    for (const Parameter& parameter : step.program.graph().parameters) {
      loss();  // leaves the gradients where the parameters are as they were
      const auto elements = step.program.graph().value(parameter.value).type.shape.count();
      auto* values = static_cast<double*>(step.program.address(parameter.value));
      const auto* d = static_cast<const double*>(step.program.address(parameter.gradient));
      const std::vector<double> gradient(d, d + elements);
      for (std::int64_t e = 0; e < elements; e += 1 + elements / 17) {
        const double value = values[e], h = 1e-6;
        values[e] = value + h;
        const double ahead = loss();
        values[e] = value - h;
        const double behind = loss();
        values[e] = value;
        EXPECT_NEAR((ahead - behind) / (2 * h), gradient[idx(e)], 1e-8)
            << parameter.name << " element " << e;
      }
    }
  }
}

TEST(Differentiate, IsTheSlopeOfTheLoss) {
  expect_slope(two_branches());
}

// A table of tokens that is also added to activations, whose gradient is then the table's: what an
// embedding adds to the table's may not be written over it.
TEST(Differentiate, IsTheSlopeWhereATableIsAddedToActivations) {
  constexpr std::int64_t rows = 10, width = 5;
  Graph g;
  const Type tokens{DType::i32, {rows}};
  const Tensor slot = g.input("tokens", tokens), order = g.input("order", tokens);
  const Tensor labels = g.input("labels", tokens);
  const std::vector<float> half{0.5F, 0.5F};
  const Tensor images = g.input("images", {DType::u8, {rows, 1, 1, 2}});
  const Tensor h = linear("in", flatten(normalize(images, half, half)), {.out = width});
  const Tensor embedded = embed(
      "wte", "wpe", slot, order,
      {.vocabulary = rows, .context = rows, .sequence = rows, .width = width, .deviation = 1});
  const auto table = std::ranges::find(g.parameters, "wte.weight", &Parameter::name);
  const Tensor sum = add(add(h, {&g, table->value}), relu(embedded));
  cross_entropy(linear("out", sum, {.out = 10}), labels);
  expect_slope(g);
}

TEST(Differentiate, SaysWhatIsMissing) {
  Graph unused = two_branches();
  linear("head2", unused.input("y", {DType::f32, {4, 5}}), {.out = 3});
  EXPECT_THAT(
      [&] { differentiate(unused); },
      ThrowsMessage<Error>(HasSubstr("the loss does not depend on parameter head2.weight")));
  Graph no_loss;
  linear("fc", no_loss.input("x", {DType::f32, {4, 5}}), {.out = 3});
  EXPECT_THAT([&] { differentiate(no_loss); },
              ThrowsMessage<Error>(HasSubstr("no loss to differentiate; end the model with "
                                             "cross_entropy()")));
}

TEST(AddOptimizer, StartsWithTheClockAndUpdatesEveryParameter) {
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::sgd;
  sgd.momentum = 0.9;
  const Graph g = add_optimizer(differentiate(two_branches()), sgd, {});
  EXPECT_TRUE(std::holds_alternative<Clock>(g.nodes.front().op));
  EXPECT_EQ(count<Update>(g), 4);
  for (const Parameter& parameter : g.parameters) ASSERT_EQ(parameter.moments.size(), 1U);
}

// ---- precision

// What the nodes of a graph read and write.
std::set<int> used_values(const Graph& g) {
  std::set<int> used;
  for (const Node& node : g.nodes) {
    used.insert(node.in.begin(), node.in.end());
    used.insert(node.out.begin(), node.out.end());
  }
  return used;
}

TEST(Precision, LowersActivationsGradientsAndCopies) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Graph g = apply_precision(model_step("mlp", 2), precision);
    for (const int id : used_values(g)) {
      const Value& value = g.value(id);
      if (!is_float(value.type.dtype)) continue;
      const bool f32 = value.role == Role::parameter || value.role == Role::moment ||
                       value.role == Role::statistic;
      EXPECT_EQ(value.type.dtype, f32 ? DType::f32 : storage_dtype(precision)) << value.name;
    }
    for (const Node& node : g.nodes)
      for (const int id : node.in)
        EXPECT_FALSE(node.phase != Phase::update && g.value(id).role == Role::parameter)
            << node.title() << " computes with a master";
  }
}

TEST(Precision, TypesFollowTheOpsOwnRules) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const Graph g = apply_precision(model_step("cifar10cnn", 2), precision);
    for (const Node& node : g.nodes)
      EXPECT_EQ(infer(node.op, g.types(node.in)), g.types(node.out)) << node.title();
  }
}

TEST(Precision, ScalesTheLossInFp16Alone) {
  EXPECT_EQ(count<CheckGradients>(apply_precision(model_step("mlp", 2), Precision::bf16)), 0);
  const Graph g = apply_precision(model_step("mlp", 2), Precision::fp16);
  EXPECT_EQ(count<CheckGradients>(g), 1);
  StepOptions clipped;
  clipped.update.clip_norm = 1;
  EXPECT_EQ(count<CheckGradients>(apply_precision(model_step("mlp", 2, clipped), Precision::fp16)),
            1);
  for (const Node& node : g.nodes)
    if (const auto* xent = std::get_if<SoftmaxXent>(&node.op)) {
      EXPECT_TRUE(xent->scaled);
      EXPECT_EQ(node.in.back(), g.state);
    }
  EXPECT_TRUE(std::get<Clock>(g.nodes[0].op).scaling.enabled);
}

TEST(Precision, IsNamed) {
  EXPECT_EQ(storage_dtype(Precision::tf32), DType::f32);
  EXPECT_EQ(parse_precision("fp16"), Precision::fp16);
  EXPECT_THAT([] { parse_precision("fp8"); },
              ThrowsMessage<UsageError>(
                  "no precision is called 'fp8'; there are fp32, tf32, bf16 and fp16"));
}

TEST(Differentiate, RefusesParametersWhoseGradientsAreNotTheirOwn) {
  const auto ends_in = [](auto weight) {
    Graph g;
    const Tensor x = g.input("x", {DType::f32, {4, 1, 1, 6}});
    const Tensor h = add(flatten(x), weight(g));
    cross_entropy(linear("fc", h, {.out = 3}), g.input("labels", {DType::i32, {4}}));
    differentiate(std::move(g));
  };
  const auto named = [](Graph& g, const char* name, const Shape& shape) {
    return parameter(g, name, shape, {});
  };
  EXPECT_NO_THROW(ends_in([&](Graph& g) { return named(g, "p", {4, 6}); }));
  EXPECT_THAT(
      [&] { ends_in([&](Graph& g) {
              return add(named(g, "p", {4, 6}), named(g, "q", {4, 6}));
            }); },
      ThrowsMessage<Error>(HasSubstr("is at the same time that of another value (d_")));
  EXPECT_THAT([&] { ends_in([&](Graph& g) {
                      return flatten(named(g, "p", {4, 1, 1, 6}));
                    }); },
              ThrowsMessage<Error>(HasSubstr("the gradient of parameter p")));
}

// ---- schedule

TEST(Schedule, DropsWhatNothingNeeds) {
  Graph g = two_branches();
  const std::size_t needed = schedule(g).nodes.size();
  relu({&g, g.nodes[0].out[0]});
  EXPECT_EQ(schedule(g).nodes.size(), needed);
  g.correct = -1;  // nobody asks for the top-1 count
  EXPECT_EQ(count<Top1>(schedule(g)), 0);
}

TEST(Schedule, RefusesANodeBeforeItsInput) {
  Graph g = two_branches();
  std::swap(g.nodes[1], g.nodes[2]);
  EXPECT_THAT([&] { schedule(g); },
              ThrowsMessage<Error>(HasSubstr("conv/relu needs conv/conv before it is made")));
}

// ---- statistics

TEST(Blocks, EndAtTheFirstNumberOfAName) {
  EXPECT_EQ(block_name("h.3.attn.c_attn.weight"), "h.3");
  EXPECT_EQ(block_name("layer1.0.downsample.1.bias"), "layer1.0");
  EXPECT_EQ(block_name("conv1.weight"), "conv1");
  EXPECT_EQ(block_name("0.weight"), "0");
  EXPECT_EQ(block_name("fc"), "fc");
  EXPECT_EQ(block_name(""), "");
}

TEST(Blocks, HaveTheLastValueThatIsComputedOfThem) {
  const Graph model = testing_support::language();
  std::vector<std::string> outputs;
  for (const Block& block : find_blocks(model)) {
    const int producer = block.output < 0 ? -1 : model.producers()[idx(block.output)];
    outputs.push_back(
        block.name + (producer < 0 ? "" : fmt::format(" {}", name(model.nodes[idx(producer)].op))));
  }
  EXPECT_THAT(outputs, testing::ElementsAre("wte embed", "h.0 add", "h.1 add", "ln_f layer_norm",
                                            "lm_head linear", "wpe"));
}

TEST(Statistics, LeaveEveryOtherCallAsItIs) {
  for (const char* model : {"gpt2", "resnet18", "airbench"}) {
    const auto calls = [&](bool statistics) {
      const Graph step = model_step(model, 2, {.statistics = statistics});
      std::vector<std::string> texts;
      for (const Node& node : step.nodes)
        if (!is_measure(node.op)) texts.push_back(node.title() + " " + text(node.op));
      return texts;
    };
    EXPECT_EQ(calls(true), calls(false)) << model;
  }
}

}  // namespace
}  // namespace warpstep

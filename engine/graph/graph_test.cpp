// Shapes that do not fit: each message names the layer, the model's line, the numbers and the fix.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <functional>

#include "engine/core/error.h"
#include "engine/graph/graph.h"
#include "engine/graph/layers.h"

namespace warpstep {
namespace {

using testing::HasSubstr;

Tensor images(Graph& graph, Shape shape = {8, 32, 32, 3}) {
  return graph.input("images", {DType::f32, shape});
}

void expect_error(const std::function<void(Graph&)>& build,
                  const std::vector<std::string>& fragments) {
  Graph graph;
  try {
    build(graph);
    ADD_FAILURE() << "no error; expected " << fragments[0];
  } catch (const ShapeError& error) {
    for (const std::string& fragment : fragments) EXPECT_THAT(error.what(), HasSubstr(fragment));
  }
}

TEST(ShapeErrors, NameTheModelsLine) {
  const int line = __LINE__ + 2;
  const auto build = [](Graph& g) {
    conv("conv2", images(g, {8, 2, 2, 3}), {.out = 4, .kernel = 5});
  };
  expect_error(build, {fmt::format("graph/graph_test.cpp:{} ", line), "conv2/conv: ",
                       "a 5x5 kernel (reach 5) does not fit the height of 2 with padding 0",
                       "use a smaller kernel or more padding"});
}

TEST(ShapeErrors, OfConvolutions) {
  expect_error(
      [](Graph& g) {
        conv("c", images(g, {8, 9, 4, 3}), {.out = 4, .dilation = 2});
      },
      {"c/conv: a 3x3 kernel (reach 5) does not fit the width of 4"});
  expect_error(
      [](Graph& g) {
        conv("c", images(g, {8, 48}), {.out = 4});
      },
      {"c: conv takes images [N,H,W,C], not f32 8x48"});
  expect_error([](Graph& g) { conv("c", images(g), {.out = 4, .groups = 2}); },
               {"c: 3 input channels cannot be split into 2 groups"});
  expect_error([](Graph& g) { conv("c", images(g), {.out = 4, .groups = 3}); },
               {"3 groups do not divide both 3 input and 4 output channels"});
  expect_error([](Graph& g) { conv("c", images(g), {.kernel = 5}); },
               {"c: conv to 0 output channels with a 5x5 kernel; each must be at least 1"});
  expect_error([](Graph& g) { conv("c", images(g), {.out = 4, .kernel = 0}); },
               {"c: conv to 4 output channels with a 0x0 kernel"});
  expect_error([](Graph& g) { conv("c", images(g), {.out = 4, .stride = 0}); },
               {"s0", "has an attribute out of range"});
  expect_error(
      [](Graph& g) {
        const Tensor w = g.input("w", {DType::f32, {4, 3, 3, 5}});
        Conv op{.out = 4};
        op.bias = false;
        g.record(Phase::forward, op, {images(g), w}, "c", Where::current());
      },
      {"weight is 4x3x3x5, but input 8x32x32x3 needs 4x3x3x3"});
}

TEST(ShapeErrors, OfTheOtherLayers) {
  expect_error([](Graph& g) { linear("fc", images(g), {.out = 10}); },
               {"fc: linear takes [N,features], not f32 8x32x32x3", "flatten images first"});
  expect_error(
      [](Graph& g) {
        linear("fc", images(g, {8, 4}), {.out = 0});
      },
      {"fc: linear to 0 outputs; must be at least 1"});
  expect_error(
      [](Graph& g) {
        max_pool(images(g, {8, 1, 2, 3}));
      },
      {"a 2x2 window does not fit images of 1x2", "pooled too often"});
  expect_error([](Graph& g) { max_pool(images(g), {.window = 2, .padding = 2}); },
               {"max_pool 2x2 s2 p2: ", "padding (p) from 0 to half of the window"});
  expect_error([](Graph& g) { max_pool(images(g), {.window = 2, .stride = 0}); },
               {"max_pool 2x2 s0: ", "stride at least 1"});
  expect_error([](Graph& g) { max_pool(images(g), {.window = 2, .padding = -1}); },
               {"max_pool 2x2 s2 p-1: ", "padding (p) from 0 to half of the window"});
  expect_error([](Graph& g) { avg_pool(images(g), {.window = 2, .stride = 0}); },
               {"avg_pool 2x2 s0: ", "stride at least 1"});
  expect_error([](Graph& g) { avg_pool(images(g), {.window = -2, .stride = 2}); },
               {"avg_pool -2x-2 s2: ", "window must be at least 1"});
  expect_error([](Graph& g) { max_pool(images(g), {.window = 16}); }, {"window must be 1 to 15"});
  expect_error(
      [](Graph& g) {
        add(images(g, {8, 4}), images(g, {8, 5}));
      },
      {"add: operands differ: 8x4 and 8x5"});
  expect_error(
      [](Graph& g) {
        g.record(Phase::forward, Reshape{{8, 7}}, {images(g, {8, 3, 2})}, "", Where::current());
      },
      {"reshape: 8x3x2 has 48 elements, 8x7 has 56"});
  expect_error(
      [](Graph& g) { g.record(Phase::forward, Add{}, {images(g)}, "sum", Where::current()); },
      {"sum/add: add takes 2 inputs, not 1"});
}

// 2^35 probabilities; draws have counters of 64 bits.
TEST(Layers, AttentionWithDropoutHasNoMostProbabilities) {
  Graph g;
  const Tensor qkv = g.input("qkv", {DType::f32, {32 * 8192, 3 * 16 * 64}});
  EXPECT_EQ(attention(qkv, {.heads = 16, .sequence = 8192, .dropout = 0.1}).type(),
            (Type{DType::f32, {32 * 8192, 16 * 64}}));
}

// Else the first checkpoint would be refused, after an epoch.
TEST(ShapeErrors, OfNamesThatNoCheckpointHolds) {
  for (const char* const name : {"a\xff", "a\n", "a\x1b[31m"})
    expect_error([&](Graph& g) { parameter(g, name, {1}, {}); },
                 {"parameter a?", ": a name must be UTF-8 without control characters"});
  Graph graph;
  EXPECT_NO_THROW(parameter(graph, "größe/漢字 \"1\"", {1}, {}));
}

// A store divides by the size of the first.
TEST(ShapeErrors, OfParametersWithoutElements) {
  expect_error([](Graph& g) { parameter(g, "x", {0}, {}); },
               {"parameter x of 0 has no elements; every extent must be at least 1"});
  expect_error(
      [](Graph& g) {
        linear("fc", images(g, {8, 0}), {.out = 4});
      },
      {"parameter fc.weight of 4x0 has no elements"});
}

TEST(ShapeErrors, OfInputAndLoss) {
  const std::vector<float> one{1}, zero{0}, three{1, 1, 1};
  expect_error([&](Graph& g) { normalize(images(g), one, three); },
               {"images have 3 channels, but mean has 1 and std 3 elements"});
  expect_error(
      [&](Graph& g) {
        normalize(images(g, {8, 2, 2, 1}), one, zero);
      },
      {"std of channel 0 is 0; it must be finite and above 0"});
  expect_error([&](Graph& g) { normalize(images(g), three, three); },
               {"normalize takes u8 images, not f32 8x32x32x3; convert() takes"});
  expect_error(
      [](Graph& g) {
        cross_entropy(images(g, {8, 10}), g.input("labels", {DType::i32, {7}}));
      },
      {"nll of f32 8x10 needs labels i32 8, got i32 7"});
}

TEST(ShapeErrors, OfPlansAndPixels) {
  const auto bytes = [](Graph& g) { return g.input("images", {DType::u8, {9, 8, 8, 3}}); };
  const auto rows = [](Graph& g, std::int64_t words) {
    return g.input("rows", {DType::i32, {4, words}});
  };
  expect_error([&](Graph& g) { convert(bytes(g)); }, {"convert takes f32 images, not u8 9x8x8x3"});
  expect_error(
      [&](Graph& g) {
        augment(images(g), rows(g, 12), {}, {8, 8});
      },
      {"input/augment: augment takes u8 images [any,H,W,3]", "not f32 8x32x32x3"});
  expect_error(
      [&](Graph& g) {
        augment(bytes(g), rows(g, 12), {.channels = 1}, {8, 8});
      },
      {"augment takes u8 images [any,H,W,1] for this plan, not u8 9x8x8x3"});
  expect_error(
      [&](Graph& g) {
        augment(bytes(g), rows(g, 12), {.channels = 4}, {8, 8});
      },
      {"the plan is for 4 channels; 1 to 3 are possible"});
  expect_error(
      [&](Graph& g) {
        augment(bytes(g), rows(g, 11), {}, {8, 8});
      },
      {"augment needs one plan per row, i32 4x14, got i32 4x11"});
  expect_error(
      [&](Graph& g) {
        augment(bytes(g), rows(g, 12), {}, {0, 8});
      },
      {"the output is 0x8 pixels; each side must be at least 1"});
  expect_error(
      [&](Graph& g) {
        cross_entropy(images(g, {8, 10}), g.input("labels", {DType::i32, {8}}), rows(g, 12));
      },
      {"nll needs one plan per row, i32 8x14, got i32 4x12"});
}

TEST(Layers, RefuseTwoParametersOfOneName) {
  expect_error(
      [](Graph& g) {
        const Tensor x = linear("fc", images(g, {8, 4}), {.out = 4});
        linear("fc", x, {.out = 4});
      },
      {"two parameters are called fc.weight", "its own name"});
}

TEST(Layers, ShapesFollowPyTorchsFormula) {
  Graph g;
  const Tensor x = images(g, {2, 11, 14, 6});
  const auto shape = [](Tensor t) { return t.type().shape.text(); };
  EXPECT_EQ(shape(conv("a", x, {.out = 4, .stride = 2, .padding = 1})), "2x6x7x4");
  EXPECT_EQ(shape(conv("b", x, {.out = 4, .dilation = 3, .groups = 2})), "2x5x8x4");
  EXPECT_EQ(shape(max_pool(x)), "2x5x7x6");
  EXPECT_EQ(shape(max_pool(x, {.window = 3, .stride = 2, .padding = 1})), "2x6x7x6");
  EXPECT_EQ(shape(flatten(x)), "2x924");
}

TEST(Layers, SeeAFlattenBehindWhatKeepsElementsInTheirPlaces) {
  for (const auto between : {+[](Tensor t) { return relu(t); }, +[](Tensor t) { return gelu(t); },
                             +[](Tensor t) { return relu(dropout(t, 0.5)); }}) {
    Graph g;
    linear("fc", between(flatten(images(g, {2, 4, 5, 3}))), {.out = 7});
    EXPECT_EQ(g.parameters[0].view, (Shape{7, 4, 5, 3}));
    EXPECT_EQ(g.parameters[0].permutation, (std::vector{0, 3, 1, 2}));
  }
}

TEST(Layers, RefuseANormOfFlattenedImages) {
  Graph g;
  EXPECT_THROW(layer_norm("ln", relu(flatten(images(g, {2, 4, 5, 3})))), ShapeError);
  layer_norm("ln", linear("fc", flatten(images(g, {2, 4, 5, 3})), {.out = 7}));
  layer_norm("ln of pixels", flatten(images(g, {2, 1, 1, 3})));
}

TEST(Layers, NameNodesAndParameters) {
  Graph g;
  const Tensor x = relu(conv("conv1", images(g), {.out = 4, .padding = 1}));
  linear("fc", flatten(max_pool(x)), {.out = 10, .bias = false});
  std::vector<std::string> nodes, parameters;
  for (const Node& node : g.nodes) nodes.push_back(node.title());
  for (const Parameter& parameter : g.parameters) parameters.push_back(parameter.name);
  EXPECT_THAT(nodes, testing::ElementsAre("conv1/conv", "conv1/relu", "conv1/max_pool",
                                          "conv1/reshape", "fc/linear"));
  EXPECT_THAT(parameters, testing::ElementsAre("conv1.weight", "conv1.bias", "fc.weight"));
  const auto torch = [&](std::size_t p) {
    return g.parameters[p].torch_shape(g.value(g.parameters[p].value).type.shape).text();
  };
  EXPECT_EQ(torch(0), "4x3x3x3");
  EXPECT_EQ(torch(1), "4");
  EXPECT_EQ(torch(2), "10x1024");
  EXPECT_DOUBLE_EQ(g.parameters[0].initial.value, 1 / std::sqrt(27.0));
  EXPECT_DOUBLE_EQ(g.parameters[2].initial.value, 1 / std::sqrt(1024.0));
}

// By hand: 2 * 27 taps * 8 * 16 * 16 * 5 outputs; bytes of x, weight, bias and y.
TEST(Cost, OfAConvolution) {
  Graph g;
  conv("c", images(g, {8, 16, 16, 3}), {.out = 5, .padding = 1});
  const Cost cost = g.cost(g.nodes[0]);
  EXPECT_EQ(cost.flops, 2.0 * 27 * 8 * 16 * 16 * 5);
  EXPECT_EQ(cost.bytes, 4.0 * (8 * 16 * 16 * 3 + 5 * 27 + 5 + 8 * 16 * 16 * 5));
  EXPECT_EQ(cost.depth, 27);
}

TEST(Graph, CountsUsesAndProducers) {
  Graph g;
  const Tensor x = images(g, {8, 10});
  const Tensor y = relu(x);
  add(y, y);
  cross_entropy(y, g.input("labels", {DType::i32, {8}}));
  EXPECT_EQ(g.producers()[idx(x.id)], -1);
  EXPECT_EQ(g.producers()[idx(y.id)], 0);
  EXPECT_EQ(g.use_counts()[idx(y.id)], 5);  // twice by add, log_softmax, top1, and as the logits
  EXPECT_EQ(g.use_counts()[idx(g.loss)], 1);
}

void expect_misuse(const std::function<void()>& build, const std::string& words) {
  EXPECT_THAT(build, testing::ThrowsMessage<UsageError>(HasSubstr(words)));
}

TEST(Misuse, OfATensorOfNoGraph) {
  const std::string words = "a tensor that belongs to no graph: nothing was assigned to it";
  Graph graph;
  const Tensor x = graph.input("x", {DType::f32, {4, 8}});
  const Tensor labels = graph.input("labels", {DType::i32, {4}});
  expect_misuse([] { relu({}); }, words);
  expect_misuse([] { linear("fc", {}, {.out = 2}); }, words);
  expect_misuse([] { batch_norm("bn", {}); }, words);
  expect_misuse([] { layer_norm("ln", {}); }, words);
  expect_misuse([] { dropout({}, 0.5); }, words);
  expect_misuse([] { attention({}, {}); }, words);
  expect_misuse([&] { twin(x, {}); }, words);
  expect_misuse([&] { tied_head("head", x, {}); }, words);
  expect_misuse([] { set_loss({}); }, words);
  expect_misuse([&] { cross_entropy({}, labels); }, words);
  expect_misuse([&] { add(x, {}); }, "graph/graph_test.cpp:");
  expect_misuse([&] { add(x, {}); }, " add: " + words);
}

// The first would count in nothing.
TEST(Misuse, OfASecondLoss) {
  Graph graph;
  const Tensor labels = graph.input("labels", {DType::i32, {4}});
  const Tensor x = linear("fc", graph.input("x", {DType::f32, {4, 8}}), {.out = 2});
  cross_entropy(x, labels);
  expect_misuse([&] { cross_entropy(relu(x), labels); },
                "the model has a loss already, loss/nll, and a step minimises one");
}

TEST(Misuse, OfATensorOfAnotherGraph) {
  Graph graph, other;
  const Tensor x = graph.input("x", {DType::f32, {4, 8}});
  const Tensor y = other.input("y", {DType::f32, {4, 8}});
  expect_misuse([&] { add(x, y); },
                " add: input 1 belongs to another graph; record all layers of a");
  EXPECT_TRUE(graph.nodes.empty());
  const Tensor loss = graph.input("loss", {DType::f32, {}});
  const Tensor count = other.input("count", {DType::i32, {}});
  expect_misuse([&] { set_loss(loss, count); }, "belongs to another graph than the loss");
  const Tensor fc = linear("fc", y, {.out = 2});
  EXPECT_THAT([&] { twin(x, fc); },
              testing::ThrowsMessage<ShapeError>("twin takes the output of linear() of the same "
                                                 "graph, not fc/linear"));
}

TEST(Misuse, OfATensorWhoseGraphWasMovedAway) {
  Graph graph;
  const Tensor y = relu(graph.input("x", {DType::f32, {4, 8}}));
  const Graph moved = std::move(graph);
  expect_misuse([&] { relu(y); },
                "a tensor refers to value 1 of a graph that has 0: the graph was moved away");
  EXPECT_EQ(moved.nodes.size(), 1U);
}

TEST(Misuse, OfAnInputsRole) {
  Graph graph;
  expect_misuse(
      [&] {
        graph.input("p", {DType::f32, {4}}, Role::parameter);
      },
      "input 'p': its role is parameter; must be input or resident");
}

// What would train on NaN, or overflow, in silence.
TEST(ShapeErrors, OfNumbersOfLayers) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](const std::function<void(Tensor)>& record, const std::string& words) {
    expect_error([&](Graph& g) { record(g.input("x", {DType::f32, {8, 4, 4, 3}})); }, {words});
  };
  for (const double epsilon : {nan, -1.0, std::numeric_limits<double>::infinity()}) {
    const std::string words = fmt::format("epsilon is {}; must be a finite number from 0", epsilon);
    refused([&](Tensor x) { batch_norm("bn", x, {.epsilon = epsilon}); }, "batch_norm: " + words);
    refused([&](Tensor x) { layer_norm("ln", flatten(global_avg_pool(x)), {.epsilon = epsilon}); },
            "layer_norm: " + words);
  }
  for (const double momentum : {nan, -0.1, 1.1})
    refused([&](Tensor x) { batch_norm("bn", x, {.momentum = momentum}); },
            fmt::format("momentum is a share from 0 to 1, not {}", momentum));
  constexpr std::int64_t most = (std::int64_t{1} << 30) + 1;
  for (const Conv& conv : {Conv{.out = 4, .padding = most}, Conv{.out = 4, .dilation = most}})
    refused([&](Tensor x) { warpstep::conv("c", x, conv); }, "has an attribute out of range");
  for (const double deviation : {nan, -1.0})
    refused([&](Tensor x) { linear("fc", flatten(x), {.out = 2}, {.deviation = deviation}); },
            fmt::format("parameter fc.weight begins with {}; must be a finite number from 0",
                        deviation));
  for (const Initial& initial :
       {Initial{Initial::Kind::constant, nan}, Initial{Initial::Kind::normal, -1.0}})
    expect_error([&](Graph& g) { parameter(g, "p", {4}, initial); }, {"parameter p begins with"});
  const auto normalized = [](float mean, float std, const std::string& words) {
    const std::vector<float> means(3, mean), stds(3, std);
    expect_error([&](Graph& g) { normalize(images(g), means, stds); }, {words});
  };
  for (const float number : {std::numeric_limits<float>::infinity(), static_cast<float>(nan)}) {
    normalized(number, 1, fmt::format("mean of channel 0 is {}; it must be a finite", number));
    normalized(0, number, fmt::format("std of channel 0 is {}; it must be finite", number));
  }
  for (const auto& [mean, std] : {std::pair{0.0F, 1e-41F}, {1e30F, 1e-30F}})
    normalized(mean, std, "of channel 0: pixels would pass the range of f32");
}

// Their kernels would read four bytes of each.
TEST(ShapeErrors, OfLayersOfBytes) {
  const auto refused = [](const std::string& layer, const std::function<void(Tensor)>& record) {
    expect_error(
        [&](Graph& g) {
          record(g.input("x", {DType::u8, {8, 4, 4, 3}}));
        },
        {layer +
         " takes floating-point numbers, not u8 8x4x4x3; normalize() converts bytes to them"});
  };
  refused("relu", [](Tensor x) { relu(x); });
  refused("gelu", [](Tensor x) { gelu(x); });
  refused("max_pool", [](Tensor x) { max_pool(x); });
  refused("avg_pool", [](Tensor x) { global_avg_pool(x); });
  refused("add", [](Tensor x) { add(x, x); });
  refused("batch_norm", [](Tensor x) { batch_norm("bn", x); });
}

}  // namespace
}  // namespace warpstep

// The loops that stand for cuDNN, against independent formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/core/error.h"
#include "kernels/cuda/dnn.h"
#include "tests/cuda_on_cpu/library_testing.h"

namespace warpstep::cuda {
namespace {

using dnn::Convolution;
using dnn::Graph;
using dnn::Pointwise;
using testing::ElementsAre;
using testing::HasSubstr;

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b.at(i);
  return sum;
}

std::size_t count(const dnn::Tensor& t) {
  return idx(t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]);
}

void run(const Graph& graph, const std::map<std::int64_t, void*>& addresses) {
  const auto plan = dnn::open_library({})->plan(graph).plan;
  std::vector<dnn::Binding> bindings;
  for (const auto& [uid, address] : addresses) bindings.push_back({uid, address});
  const Memory workspace(DType::f32, plan->workspace_bytes() / 4);
  CudaStream stream;
  plan->execute(stream, bindings, workspace.data());
}

struct Geometry {
  std::int64_t images, height, width, in, out, kernel, padding, stride, dilation, groups;
};
Graph conv_graph(const Geometry& g, Convolution::Direction direction, DType dtype = DType::f32) {
  const auto extent = [&](std::int64_t size) {
    return (size + 2 * g.padding - g.dilation * (g.kernel - 1) - 1) / g.stride + 1;
  };
  return {.name = "conv",
          .tensors = {dnn::nhwc(1, dtype, g.images, g.height, g.width, g.in),
                      dnn::nhwc(2, dtype, g.out, g.kernel, g.kernel, g.in / g.groups),
                      dnn::nhwc(3, dtype, g.images, extent(g.height), extent(g.width), g.out)},
          .operations = {Convolution{direction, 1, 2, 3, g.padding, g.stride, g.dilation}}};
}

TEST(EmulatedDnn, ConvolvesBySmallNumbers) {
  // A 3x3 image and a 2x2 kernel, by hand: the decimals show which pixels each tap reads.
  struct Case {
    std::int64_t padding, stride, dilation;
    std::vector<float> y;
  };
  for (const auto& [padding, stride, dilation, y] :
       {Case{0, 1, 1, {5421, 6532, 8754, 9865}}, Case{1, 2, 1, {1000, 3200, 7040, 9865}},
        Case{0, 1, 2, {9731}}}) {
    const Graph graph = conv_graph({1, 3, 3, 1, 1, 2, padding, stride, dilation, 1},
                                   Convolution::Direction::forward);
    const Memory x(DType::f32, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w(DType::f32, {1, 10, 100, 1000});
    const Memory result(DType::f32, y.size());
    run(graph, {{1, x.data()}, {2, w.data()}, {3, result.data()}});
    EXPECT_EQ(result.values(), y);
  }
}

TEST(EmulatedDnn, KeepsGroupsApart) {
  const Graph graph = conv_graph({1, 1, 2, 4, 4, 1, 0, 1, 1, 2}, Convolution::Direction::forward);
  const Memory x(DType::f32, {1, 2, 3, 4, 5, 6, 7, 8}), y(DType::f32, 8);
  const Memory w(DType::f32, {1, 10, 2, 20, 3, 30, 4, 40});
  run(graph, {{1, x.data()}, {2, w.data()}, {3, y.data()}});
  EXPECT_THAT(y.values(), ElementsAre(21, 42, 129, 172, 65, 130, 261, 348));
}

TEST(EmulatedDnn, DirectionsAreAdjoint) {
  const std::vector<Geometry> geometries{{2, 7, 6, 3, 4, 3, 1, 1, 1, 1},
                                         {2, 8, 9, 4, 6, 3, 1, 2, 1, 2},
                                         {1, 9, 7, 6, 6, 3, 2, 1, 2, 6},
                                         {3, 5, 5, 8, 2, 1, 0, 2, 1, 1}};
  using enum Convolution::Direction;
  for (const Geometry& g : geometries) {
    const Graph forward_graph = conv_graph(g, forward);
    const auto x = randoms(count(forward_graph.tensors[0]), 1);
    const auto w = randoms(count(forward_graph.tensors[1]), 2);
    const auto d_y = randoms(count(forward_graph.tensors[2]), 3);
    const auto result_of = [&](Convolution::Direction direction, std::int64_t written) {
      std::map<std::int64_t, Memory> memory;
      memory.emplace(1, Memory(DType::f32, x));
      memory.emplace(2, Memory(DType::f32, w));
      memory.emplace(3, Memory(DType::f32, d_y));
      std::map<std::int64_t, void*> addresses;
      for (const auto& [uid, values] : memory) addresses[uid] = values.data();
      run(conv_graph(g, direction), addresses);
      return memory.at(written).values();
    };
    const double forwards = dot(result_of(forward, 3), d_y);
    EXPECT_NEAR(forwards, dot(result_of(data_grad, 1), x), 1e-3);
    EXPECT_NEAR(forwards, dot(result_of(weight_grad, 2), w), 1e-3);
    EXPECT_NE(forwards, 0);
  }
}

TEST(EmulatedDnn, FusesBiasAndReluAndRoundsOnce) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Graph graph =
        conv_graph({1, 1, 2, 2, 2, 1, 0, 1, 1, 1}, Convolution::Direction::forward, dtype);
    graph.tensors.push_back(dnn::nhwc(4, dtype, 1, 1, 1, 2));
    graph.tensors.push_back(dnn::virtual_like(graph.tensors[2], 5));
    graph.tensors.push_back(graph.tensors[2]);
    graph.tensors[2].is_virtual = true;
    graph.tensors.back().uid = 6;
    graph.operations.push_back(Pointwise{Pointwise::Mode::add, 3, 4, 5});
    graph.operations.push_back(Pointwise{Pointwise::Mode::relu, 5, 0, 6});
    const Memory x(dtype, {1, 2, 3, 4}), w(dtype, {1, 1, 2048, -1}), bias(dtype, {-3, 0.5F});
    const Memory y(dtype, 4);
    run(graph, {{1, x.data()}, {2, w.data()}, {4, bias.data()}, {6, y.data()}});
    // Channel 0: 3 - 3, 7 - 3. Channel 1: 2048 - 2 + 0.5, 6144 - 4 + 0.5, which f16 (steps of 1
    // and 4 there, ties to even) and bf16 (8 and 32) round.
    const float small = dtype == DType::f32 ? 2046.5F : dtype == DType::f16 ? 2046 : 2048;
    const float large = dtype == DType::f32 ? 6140.5F : dtype == DType::f16 ? 6140 : 6144;
    EXPECT_THAT(y.values(), ElementsAre(0, small, 4, large)) << name(dtype);
  }
}

// Two pixels of two channels: the gradient of the norm's output, against the formulas by hand.
TEST(EmulatedDnn, SumsChannelsAndNormsGradients) {
  const dnn::Tensor images = dnn::nhwc(1, DType::f32, 1, 1, 2, 2);
  dnn::Tensor d_y = images;
  d_y.uid = 2;
  Graph graph{.name = "sums", .tensors = {images, d_y}, .operations = {}};
  for (std::int64_t uid = 3; uid <= 12; ++uid)
    graph.tensors.push_back(dnn::nhwc(uid, DType::f32, 1, 1, 1, 2));
  graph.operations = {dnn::ChannelSums{1, 3, 4},
                      dnn::NormGradSums{1, 2, 5, 6, 7, 8, 9, 10, 11, 12}};
  const std::vector<float> x{1, 10, 3, 30};
  std::map<std::int64_t, Memory> memory;
  memory.emplace(1, Memory(DType::f32, x));
  memory.emplace(2, Memory(DType::f32, {4, 0.5F, -2, 1.5F}));
  memory.emplace(5, Memory(DType::f32, {2, 20}));    // mean
  memory.emplace(6, Memory(DType::f32, {1, 0.1F}));  // inv_std
  memory.emplace(7, Memory(DType::f32, {3, 2}));     // gamma
  std::map<std::int64_t, void*> addresses;
  for (const std::int64_t uid : {3, 4, 8, 9, 10, 11, 12})
    memory.emplace(uid, Memory(DType::f32, 2));
  for (const auto& [uid, values] : memory) addresses[uid] = values.data();
  run(graph, addresses);
  const auto of = [&](std::int64_t uid) { return memory.at(uid).values(); };
  EXPECT_THAT(of(3), ElementsAre(4, 40));
  EXPECT_THAT(of(4), ElementsAre(10, 1000));
  EXPECT_THAT(of(8), ElementsAre(-6, testing::FloatNear(1, 1e-6F)));  // sum d_y (x - mean) inv_std
  EXPECT_THAT(of(9), ElementsAre(2, 2));
  // d_x = by_d_y d_y + by_x x + constant sums to 0 and is orthogonal to x - mean.
  for (const std::size_t c : {0U, 1U}) {
    double sum = 0, product = 0;
    for (const std::size_t i : {c, c + 2}) {
      const double d_x = static_cast<double>(of(10)[c]) * memory.at(2).values()[i] +
                         static_cast<double>(of(11)[c]) * x[i] + of(12)[c];
      sum += d_x;
      product += d_x * (x[i] - memory.at(5).values()[c]);
    }
    EXPECT_NEAR(sum, 0, 1e-5);
    EXPECT_NEAR(product, 0, 1e-4);
  }
}

TEST(EmulatedDnn, KnowsItsPointwiseOperations) {
  const dnn::Tensor images = dnn::nhwc(1, DType::f32, 1, 1, 2, 2);
  const Memory x(DType::f32, {1, -2, 0, 4}), b(DType::f32, {10, 100}), y(DType::f32, 4);
  const auto result = [&](Pointwise::Mode mode) {
    dnn::Tensor out = images;
    out.uid = 3;
    run({.name = "pointwise",
         .tensors = {images, dnn::nhwc(2, DType::f32, 1, 1, 1, 2), out},
         .operations = {Pointwise{mode, 1, 2, 3}}},
        {{1, x.data()}, {2, b.data()}, {3, y.data()}});
    return y.values();
  };
  EXPECT_THAT(result(Pointwise::Mode::add), ElementsAre(11, 98, 10, 104));
  EXPECT_THAT(result(Pointwise::Mode::subtract), ElementsAre(-9, -102, -10, -96));
  EXPECT_THAT(result(Pointwise::Mode::relu_grad), ElementsAre(10, 0, 0, 100));
}

TEST(EmulatedDnn, RefusesWhatTheLibraryRefuses) {
  const Geometry g{1, 3, 3, 1, 1, 2, 0, 1, 1, 1};
  const auto library = dnn::open_library({});
  const auto refused = [&](auto change, const char* why) {
    Graph graph = conv_graph(g, Convolution::Direction::forward);
    change(graph);
    EXPECT_THAT([&] { library->plan(graph); }, testing::ThrowsMessage<Error>(HasSubstr(why)));
  };
  refused([](Graph& graph) { graph.tensors[1].uid = 1; }, "two tensors have uid 1");
  refused([](Graph& graph) { graph.tensors[0].dims[2] = 0; }, "axis 2 is 0");
  refused([](Graph& graph) { graph.tensors[0].strides[2] = 1; }, "overlaps");
  refused([](Graph& graph) { graph.tensors[0].is_virtual = true; }, "before it is written");
  refused([](Graph& graph) { graph.tensors[2].is_virtual = true; }, "is virtual");
  refused([](Graph& graph) { graph.tensors[2].dims[2] = 3; }, "axis 2 of 3 becomes 3");
  refused(
      [](Graph& graph) {
        graph.tensors.push_back(dnn::nhwc(7, DType::f16, 1, 1, 1, 1));
        graph.tensors.push_back(dnn::nhwc(8, DType::f32, 1, 1, 1, 1));
        graph.operations.push_back(dnn::ChannelSums{3, 8, 7});
      },
      "tensor 7 is not one f32 per channel");
  EXPECT_EQ(dnn::open_library({.workspace_cap = 10})
                ->plan(conv_graph(g, Convolution::Direction::forward))
                .plan,
            nullptr);
}

TEST(EmulatedDnn, RefusesCallsThatTheLibraryRefuses) {
  const Graph graph = conv_graph({1, 3, 3, 1, 1, 2, 0, 1, 1, 1}, Convolution::Direction::forward);
  const Memory x(DType::f32, 16), w(DType::f32, 4), y(DType::f32, 4);
  auto* bytes = static_cast<std::byte*>(x.data());
  const auto refused = [&](const std::map<std::int64_t, void*>& addresses, const char* why) {
    EXPECT_THAT([&] { run(graph, addresses); }, testing::ThrowsMessage<Error>(HasSubstr(why)));
  };
  refused({{1, x.data()}, {2, w.data()}}, "tensor 3 is not bound");
  refused({{1, x.data()}, {2, w.data()}, {3, bytes + 16}}, "is written over tensor 1");
  refused({{1, bytes + 4}, {2, w.data()}, {3, y.data()}}, "aligned to 16");
  refused({{1, x.data()}, {2, nullptr}, {3, y.data()}}, "is null");
}

}  // namespace
}  // namespace warpstep::cuda

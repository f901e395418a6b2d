// The loops that stand for cuDNN and cublasLt, against formulas that share nothing with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/core/error.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/elements.h"

namespace warpstep::cuda {
namespace {

using dnn::Convolution;
using dnn::Graph;
using dnn::Pointwise;
using testing::ElementsAre;
using testing::HasSubstr;

// Elements of a dtype in aligned memory of the emulated device.
class Memory {
 public:
  Memory(DType dtype, std::size_t count)
      : dtype_(dtype), count_(count), owner_(allocate_device(count * size_bytes(dtype))) {}
  Memory(DType dtype, const std::vector<float>& values) : Memory(dtype, values.size()) {
    for (std::size_t i = 0; i < count_; ++i)
      store(owner_.get(), dtype_, static_cast<std::int64_t>(i), values[i]);
  }
  void* data() const { return owner_.get(); }
  std::vector<float> values() const {
    std::vector<float> values;
    for (std::size_t i = 0; i < count_; ++i)
      values.push_back(load(owner_.get(), dtype_, static_cast<std::int64_t>(i)));
    return values;
  }

 private:
  DType dtype_;
  std::size_t count_;
  std::shared_ptr<std::byte> owner_;
};

std::vector<float> randoms(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> eighths(-16, 16);  // exact in every dtype
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(eighths(random)) / 8;
  return values;
}

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
  // A 3x3 image and a 2x2 kernel, by hand.
  const Graph graph = conv_graph({1, 3, 3, 1, 1, 2, 0, 1, 1, 1}, Convolution::Direction::forward);
  const Memory x(DType::f32, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w(DType::f32, {1, 10, 100, 1000});
  const Memory y(DType::f32, 4);
  run(graph, {{1, x.data()}, {2, w.data()}, {3, y.data()}});
  EXPECT_THAT(y.values(), ElementsAre(5421, 6532, 8754, 9865));
}

TEST(EmulatedDnn, PadsStridesDilatesAndGroups) {
  // Groups of one channel: each output is the sum of its own channel's corners, two apart.
  const Graph graph = conv_graph({1, 3, 3, 2, 2, 2, 1, 2, 2, 2}, Convolution::Direction::forward);
  const Memory x(DType::f32, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60, 7, 70, 8, 80, 9, 90});
  const Memory w(DType::f32, std::vector<float>(8, 1)), y(DType::f32, 8);
  run(graph, {{1, x.data()}, {2, w.data()}, {3, y.data()}});
  // Both taps of an axis stand on 1 for position 0 (-1 is padding), and on 1 for position 1.
  EXPECT_THAT(y.values(), ElementsAre(5, 50, 5, 50, 5, 50, 5, 50));
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

// d of a product by its definition, without epilogue.
double element(const Matmul& m, const std::vector<float>& a, const std::vector<float>& b,
               std::int64_t row, std::int64_t column) {
  double sum = 0;
  for (std::int64_t k = 0; k < m.depth; ++k) {
    const float left = a[idx(m.transpose_a ? k * m.pitch_a + row : row * m.pitch_a + k)];
    const float right = b[idx(m.transpose_b ? column * m.pitch_b + k : k * m.pitch_b + column)];
    sum += static_cast<double>(left) * static_cast<double>(right);
  }
  return sum;
}

struct Product {
  explicit Product(Matmul what)
      : m(what),
        a_values(randoms(idx((m.transpose_a ? m.depth : m.rows) * m.pitch_a), 1)),
        b_values(randoms(idx((m.transpose_b ? m.columns : m.depth) * m.pitch_b), 2)),
        a(m.dtype, a_values),
        b(m.dtype, b_values),
        d(m.dtype, std::vector<float>(idx(m.rows * m.pitch_d), 77)),
        bias(m.dtype, randoms(idx(m.columns), 3)) {}
  void run(void* aux) const {
    const auto plan = open_matmul_library({})->plan(m, "product");
    const Memory workspace(DType::f32, plan->workspace_bytes() / 4);
    CudaStream stream;
    plan->execute(stream, {a.data(), b.data(), d.data(), bias.data(), aux}, workspace.data());
  }

  Matmul m;
  std::vector<float> a_values, b_values;
  Memory a, b, d, bias;
};

TEST(EmulatedMatmul, MultipliesWhateverIsTransposed) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Product p({dtype, 5, 3, 4, transpose_a, transpose_b, 8, 9, 6});
        p.run(nullptr);
        const auto d = p.d.values();
        for (std::int64_t r = 0; r < 5; ++r)
          for (std::int64_t c = 0; c < 6; ++c) {
            const double exact = c < 3 ? element(p.m, p.a_values, p.b_values, r, c) : 77;
            EXPECT_NEAR(d[idx(r * 6 + c)], exact, epsilon(dtype) * std::abs(exact)) << r << c;
          }
      }
}

TEST(EmulatedMatmul, AddsBiasAndKeepsWhereItIsPositive) {
  using enum Matmul::Epilogue;
  const Memory aux(DType::f32, 5 * 128 / 32);
  for (const auto epilogue : {bias, relu_bias, relu_bias_aux}) {
    const Product p({DType::f32, 5, 3, 4, false, false, 4, 3, 3, epilogue, 128});
    p.run(aux.data());
    const auto d = p.d.values(), added = p.bias.values();
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 3; ++c) {
        const double sum = element(p.m, p.a_values, p.b_values, r, c) + added[idx(c)];
        EXPECT_EQ(d[idx(r * 3 + c)], epilogue == bias ? sum : std::max(sum, 0.0));
      }
  }
  // The gradient of the same rectifier, by the bits that it kept.
  const Product positive({DType::f32, 5, 3, 4, false, false, 4, 3, 3, bias});
  positive.run(nullptr);
  for (const auto epilogue : {drelu, drelu_bias_gradient}) {
    const Product p({DType::f32, 5, 3, 2, true, true, 5, 2, 3, epilogue, 128});
    p.run(aux.data());
    const auto d = p.d.values(), kept = positive.d.values(), sums = p.bias.values();
    for (std::int64_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < 5; ++r) {
        const double exact =
            kept[idx(r * 3 + c)] > 0 ? element(p.m, p.a_values, p.b_values, r, c) : 0;
        EXPECT_EQ(d[idx(r * 3 + c)], exact);
        sum += exact;
      }
      if (epilogue == drelu_bias_gradient) {
        EXPECT_EQ(sums[idx(c)], sum);
      }
    }
  }
}

TEST(EmulatedMatmul, SumsTheRightOperandForABiasGradient) {
  const Product p({DType::f32, 5, 3, 4, true, false, 5, 3, 3, Matmul::Epilogue::bias_gradient});
  p.run(nullptr);
  const auto d = p.d.values(), sums = p.bias.values();
  for (std::size_t c = 0; c < 3; ++c) {
    float sum = 0;
    for (std::size_t k = 0; k < 4; ++k) sum += p.b_values[k * 3 + c];
    EXPECT_EQ(sums[c], sum);
    EXPECT_EQ(d[c], element(p.m, p.a_values, p.b_values, 0, static_cast<std::int64_t>(c)));
  }
}

TEST(EmulatedMatmul, RefusesWhatTheLibraryRefuses) {
  const auto library = open_matmul_library({});
  EXPECT_THROW(library->plan({DType::f32, 5, 0, 4, false, false, 4, 3, 3}, "p"), Error);
  EXPECT_THROW(library->plan({DType::f32, 5, 3, 4, false, false, 3, 3, 3}, "p"), Error);
  EXPECT_THROW(
      library->plan({DType::f32, 5, 3, 4, false, false, 4, 3, 3, Matmul::Epilogue::drelu, 64}, "p"),
      Error);
  const Product p({DType::f32, 5, 3, 4, false, false, 4, 3, 3, Matmul::Epilogue::drelu, 128});
  EXPECT_THAT([&] { p.run(nullptr); }, testing::ThrowsMessage<Error>(HasSubstr("aux is null")));
  EXPECT_THAT([&] { p.run(p.d.data()); },
              testing::ThrowsMessage<Error>(HasSubstr("d is written over aux")));
}

}  // namespace
}  // namespace warpstep::cuda

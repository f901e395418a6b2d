// What the CUDA backend takes for a device, and how it stores what its kernels share.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/passes/compile.h"
#include "engine/run/runner.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::model_step;
using testing_support::open_tested_backend;
using testing_support::Stepping;

constexpr const char* emulated = "cuda_emulated";

TEST(CudaChoices, WantsGeluInLinearLayersOnlyWhereItPays) {
  struct Wanted {
    bool forward, adjoint;
  };
  const std::map<std::string, Wanted> wanted{{"sm_75", {false, false}}, {"sm_80", {false, false}},
                                             {"sm_89", {false, false}}, {"sm_90", {true, false}},
                                             {"sm_100", {true, true}},  {"sm_120", {false, false}}};
  for (const auto& [device, wants] : wanted) {
    const auto backend = open_tested_backend(emulated, {.assumed_device = device});
    EXPECT_EQ(backend->wants("linear+gelu"), wants.forward) << device;
    EXPECT_EQ(backend->wants("linear.dgrad+gelu"), wants.adjoint) << device;
    EXPECT_TRUE(backend->wants("linear+relu"));
  }
}

// Of a loss over many classes and of the weight gradient before it.
TEST(CudaChoices, TakesKernelsByWhatTheDeviceHas) {
  struct Taken {
    bool rows_in_shared_memory, own_sums;
  };
  const std::map<std::string, Taken> all{{"sm_75", {false, false}}, {"sm_80", {false, false}},
                                         {"sm_89", {false, false}}, {"sm_90", {true, true}},
                                         {"sm_100", {true, true}},  {"sm_120", {false, true}}};
  for (const auto& [device, taken] : all) {
    const auto backend = open_tested_backend(emulated, {.assumed_device = device});
    const auto implementations = [&](std::int64_t classes, Precision precision) {
      Graph g;
      const Tensor images = g.input("images", {DType::u8, {4, 4, 4, 3}});
      const Tensor labels = g.input("labels", {DType::i32, {4}});
      const std::vector<float> half{0.5F, 0.5F, 0.5F};
      cross_entropy(linear("fc", flatten(normalize(images, half, half)), {.out = classes}), labels);
      g = compile_step(g, options_for(*backend, {.precision = precision}));
      backend->choose_layouts(g);
      std::string loss, gradient;
      for (const Node& node : g.nodes) {
        if (std::holds_alternative<SoftmaxXent>(node.op))
          loss = backend->bind(g, node)->implementation();
        if (std::holds_alternative<LinearWeightGrad>(node.op))
          gradient = backend->bind(g, node)->implementation();
      }
      return std::pair{loss, gradient};
    };
    const auto [loss, gradient] = implementations(50257, Precision::fp16);
    EXPECT_EQ(loss,
              taken.rows_in_shared_memory ? "softmax_xent (rows in shared memory)" : "softmax_xent")
        << device;
    EXPECT_EQ(gradient.ends_with(" + column_sums"), taken.own_sums) << device << ": " << gradient;
    for (const std::int64_t classes : {8192, 50690})  // short, and too long for two blocks
      EXPECT_EQ(implementations(classes, Precision::fp16).first, "softmax_xent") << classes;
    EXPECT_EQ(implementations(20000, Precision::fp32).first, "softmax_xent") << device;
  }
}

TEST(CudaChoices, MasksAConvolutionsDataGradientWhereItHasAKernelForThat) {
  const auto masked = [](Precision precision, const std::string& device) {
    const auto backend = open_tested_backend(emulated, {.assumed_device = device});
    const Graph graph =
        model_step("cifar10cnn", 2, options_for(*backend, {.precision = precision}));
    return std::ranges::count_if(graph.nodes, [](const Node& node) {
      const auto* dgrad = std::get_if<ConvDataGrad>(&node.op);
      return dgrad && dgrad->relu;
    });
  };
  EXPECT_EQ(masked(Precision::fp16, "sm_90"), 1);
  EXPECT_EQ(masked(Precision::bf16, "sm_80"), 1);
  EXPECT_EQ(masked(Precision::fp32, "sm_90"), 0);
  EXPECT_EQ(masked(Precision::fp16, "sm_75"), 0) << "it has no such tensor cores";
}

// A sum with a value that is stored plain is plain, and so is its gradient, whose sums are a padded
// parameter's: their padding is part of no gradient's norm.
TEST(CudaLayouts, SumsPlainGradientsForPaddedBiases) {
  for (const bool smooth : {false, true})
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      Graph g;
      const Tensor images = g.input("images", {DType::u8, {4, 6, 6, 3}});
      const Tensor labels = g.input("labels", {DType::i32, {4}});
      const std::vector<float> half{0.5F, 0.5F, 0.5F};
      const Tensor x = normalize(images, half, half);
      const Tensor plain =
          flatten(global_avg_pool(conv("conv", x, {.out = 10, .kernel = 3, .padding = 1})));
      const Tensor sum = add(linear("a", flatten(x), {.out = 10}), plain);
      const Tensor h = smooth ? gelu(sum) : relu(sum);
      cross_entropy(linear("fc", h, {.out = 10}), labels);
      const auto norm = [&](const char* name) {
        const auto backend = open_tested_backend(name);
        StepOptions options{.precision = precision};
        options.update.clip_norm = 1;
        Stepping step(compile_step(g, options_for(*backend, options)), backend);
        step.program.store().initialize(3);
        step.load(1);
        eager_runner(step.program)->step();
        step.program.wait();
        EXPECT_EQ(step.program.store().step_state().overflow, 0) << name;
        return step.program.store().step_state().gradient_norm;
      };
      const float expected = norm("ref");
      EXPECT_NEAR(norm(emulated), expected,
                  (precision == Precision::fp32 ? 1e-4F : 1e-2F) * expected);
    }
}

TEST(CudaLayouts, PadsLongRowsToWholeSectors) {
  const auto stored = [](std::int64_t classes, Precision precision) {
    Graph graph;
    const Tensor x = graph.input("x", {DType::f32, {2, 16}});
    linear("fc", x, {.out = classes});
    graph = apply_precision(std::move(graph), precision);
    open_tested_backend(emulated)->choose_layouts(graph);
    const Value& weight = graph.value(graph.parameters[0].value);
    return weight.layout.bytes / 16 / size_bytes(weight.type.dtype);
  };
  EXPECT_EQ(stored(10, Precision::fp16), 16U);
  EXPECT_EQ(stored(4095, Precision::fp16), 4096U);
  EXPECT_EQ(stored(4104, Precision::fp16), 4104U);  // needs no padding
  EXPECT_EQ(stored(50257, Precision::fp16), 50304U);
  EXPECT_EQ(stored(50257, Precision::fp32), 50272U);
}

// An evaluation's step has no moments, and reads the weights as the training step stores them.
TEST(CudaLayouts, StoresWeightsAlikeWhateverTheirMomentsAre) {
  for (const std::string_view model : {"mlp", "cifar10cnn"}) {
    const auto bytes = [&](DType moments) {
      StepOptions options;
      options.optimizer.moment_dtype = moments;
      const Stepping step(model_step(model, 2, options), open_tested_backend(emulated));
      std::vector<std::size_t> all;
      for (const Parameter& parameter : step.program.graph().parameters)
        all.push_back(step.program.graph().value(parameter.value).layout.bytes);
      return all;
    };
    EXPECT_EQ(bytes(DType::bf16), bytes(DType::f32)) << model;
  }
}

}  // namespace
}  // namespace warpstep

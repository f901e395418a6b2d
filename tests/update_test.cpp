// The options of loss and update, on the reference and on the CPU: numbers from PyTorch and by
// hand, the order of a step's last calls, an accumulation against one large batch, and a resumed
// accumulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/files/checkpoint.h"
#include "engine/run/trainer.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::count;
using testing_support::model_step;
using testing_support::Stepping;

class On : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Backend> backend() const { return open_backend(GetParam(), {.threads = 2}); }
};
INSTANTIATE_TEST_SUITE_P(Backends, On, testing::Values("ref", "cpu"));

void enqueue_all(Program& program) {
  for (std::size_t call = 0; call < program.calls().size(); ++call) program.enqueue(call);
}

// ---- updates of given gradients

Optimizer sgd() {
  Optimizer o;
  o.kind = Optimizer::Kind::sgd;
  return o;
}

Optimizer lars_with(double trust, double weight_decay) {
  Optimizer lars = sgd();
  lars.kind = Optimizer::Kind::lars;
  lars.trust = trust;
  lars.weight_decay = weight_decay;
  lars.momentum = 0.9;
  return lars;
}

// A matrix and a bias [2], whose gradients the test writes.
Graph two_parameters(const Optimizer& optimizer, const UpdateOptions& options,
                     const Shape& matrix = {1, 2}) {
  Graph graph;
  for (const Shape& shape : {matrix, Shape{2}}) {
    const int p = static_cast<int>(graph.parameters.size());
    const int value = graph.add_value({DType::f32, shape}, Role::parameter, "p");
    const int gradient = graph.add_value({DType::f32, shape}, Role::gradient, "d_p");
    graph.value(value).owner = graph.value(gradient).owner = p;
    graph.parameters.push_back({.name = p == 0 ? "weight" : "bias",
                                .value = value,
                                .gradient = gradient,
                                .moments = {},
                                .view = shape,
                                .permutation = p == 0 ? std::vector{0, 1} : std::vector{0},
                                .initial = {}});
  }
  Schedule schedule;
  schedule.peak = 0.5;
  graph =
      fuse(add_optimizer(std::move(graph), optimizer, schedule, options), FuseStage::updates, {});
  return options.average_decay > 0 ? add_average(std::move(graph), options.average_decay)
                                   : std::move(graph);
}

struct Given {
  std::array<float, 2> weight, bias;
};

void set(Store& store, const Given& values, Store::Section section = Store::Section::parameter) {
  store.write(0, values.weight, section);
  store.write(1, values.bias, section);
}

void expect(const Store& store, const Given& values,
            Store::Section section = Store::Section::parameter) {
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(store.read(0, section)[i], values.weight[i], 1e-6F) << "weight " << i;
    EXPECT_NEAR(store.read(1, section)[i], values.bias[i], 1e-6F) << "bias " << i;
  }
}

// By hand: the gradient (3, 4; 0, 0) has norm 5, clipped to 2 it is (1.2, 1.6), times the rate 0.5.
TEST_P(On, ClippingShortensGradientsThatAreTooLong) {
  Program program(two_parameters(sgd(), {.clip_norm = 2}), backend());
  Store& store = program.store();
  set(store, {{1, 1}, {1, 1}});
  set(store, {{3, 4}, {0, 0}}, Store::Section::gradient);
  enqueue_all(program);
  expect(store, {{0.4F, 0.2F}, {1, 1}});
  EXPECT_NEAR(store.step_state().gradient_norm, 5, 1e-6);
  set(store, {{1, 1}, {1, 1}});
  set(store, {{0.6F, 0}, {0, 0.8F}}, Store::Section::gradient);  // norm 1: unchanged
  enqueue_all(program);
  expect(store, {{0.7F, 1}, {1, 0.6F}});
  set(store, {{1, INFINITY}, {0, 0}}, Store::Section::gradient);
  enqueue_all(program);
  expect(store, {{0.7F, 1}, {1, 0.6F}});
  EXPECT_EQ(store.step_state().overflow, 1U);
}

// By hand: averages begin with the first weights and then move by a quarter to the new ones.
TEST_P(On, TheAverageFollowsTheWeights) {
  Program program(two_parameters(sgd(), {.average_decay = 0.75}), backend());
  Store& store = program.store();
  set(store, {{1, 2}, {3, 4}});
  set(store, {{1, 2}, {3, 4}}, Store::Section::average);
  set(store, {{2, 0}, {0, -2}}, Store::Section::gradient);
  enqueue_all(program);
  expect(store, {{0, 2}, {3, 5}});
  expect(store, {{0.75F, 2}, {3, 4.25F}}, Store::Section::average);
  enqueue_all(program);
  expect(store, {{0.75F * 0.75F - 0.25F, 2}, {3, 0.75F * 4.25F + 1.5F}}, Store::Section::average);
}

// 1 - 0.9999 and 0.9999 in fp32 do not add up to 1.
TEST_P(On, TheAverageOfWhatStaysIsIt) {
  Program program(two_parameters(sgd(), {.average_decay = 0.9999}), backend());
  Store& store = program.store();
  set(store, {{0.7F, 2}, {3, -0.1F}});
  set(store, {{0.7F, 2}, {3, -0.1F}}, Store::Section::average);
  set(store, {{0, 0}, {0, 0}}, Store::Section::gradient);
  for (int step = 0; step < 2000; ++step) enqueue_all(program);
  expect(store, {{0.7F, 2}, {3, -0.1F}}, Store::Section::average);
}

// By hand: |w| = 5, |g| = 10, decay 0.1, trust 0.5: g becomes 0.5 * 5 / (10 + 0.5) times (g + 0.1
// w); biases keep their gradient and have no decay.
TEST_P(On, LarsScalesMatricesAlone) {
  Program program(two_parameters(lars_with(0.5, 0.1), {}), backend());
  Store& store = program.store();
  const Given start{{3, 4}, {1, 2}};
  set(store, start);
  set(store, {{-6, 8}, {1, -1}}, Store::Section::gradient);
  enqueue_all(program);
  const float f = 2.5F / 10.5F;
  expect(store, {{3 - 0.5F * f * -5.7F, 4 - 0.5F * f * 8.4F}, {0.5F, 2.5F}});
  expect(store, {{f * -5.7F, f * 8.4F}, {1, -1}}, Store::Section::moment1);
  set(store, start);
  set(store, {{0, 0}, {0, 0}}, Store::Section::gradient);  // unchanged, without decay
  set(store, {{0, 0}, {0, 0}}, Store::Section::moment1);
  enqueue_all(program);
  expect(store, start);
}

// As PyTorch's clip_grad_norm_ before an optimiser with LARS. By hand: the gradient (-2.4, 3.2; 0,
// 3) has norm 5, clipped to 2.5 it is (-1.2, 1.6; 0, 1.5); |w| = 5, |g| = 2, decay 0.1, trust 0.5:
// (-1.2, 1.6) + 0.1 (3, 4) times 0.5 * 5 / (2 + 0.5) = 1. Twice half of it is the same.
TEST_P(On, LarsScalesTheClippedGradient) {
  for (const std::int64_t steps : {1, 2}) {
    Program program(two_parameters(lars_with(0.5, 0.1), {.clip_norm = 2.5, .accumulate = steps}),
                    backend());
    Store& store = program.store();
    set(store, {{3, 4}, {1, 2}});
    set(store, {{-2.4F, 3.2F}, {0, 3}}, Store::Section::gradient);
    for (std::int64_t s = 0; s < steps; ++s) {
      expect(store, {{3, 4}, {1, 2}});
      enqueue_all(program);
    }
    expect(store, {{-0.9F, 2}, {0, 1.5F}}, Store::Section::moment1);
    expect(store, {{3.45F, 3}, {1, 1.25F}});
    EXPECT_NEAR(store.step_state().gradient_norm, 5, 1e-6);
  }
}

// A factor that f32 cannot hold makes every gradient 0, and LARS leaves those as they are.
TEST_P(On, LarsLeavesGradientsThatAreClippedToNothing) {
  Program program(two_parameters(lars_with(0.5, 0.1), {.clip_norm = 1e-10}), backend());
  Store& store = program.store();
  set(store, {{3, 4}, {1, 2}});
  set(store, {{-3e38F, 3e38F}, {3e38F, 0}}, Store::Section::gradient);
  enqueue_all(program);
  expect(store, {{3, 4}, {1, 2}});
  EXPECT_EQ(store.step_state().overflow, 0U);
}

TEST_P(On, LarsThatOverflowsUpdatesNothing) {
  Program program(two_parameters(lars_with(1e38, 0), {}), backend());
  Store& store = program.store();
  set(store, {{3, 4}, {1, 2}});
  set(store, {{-6, 8}, {1, -1}}, Store::Section::gradient);
  enqueue_all(program);
  expect(store, {{3, 4}, {1, 2}});
  expect(store, {{0, 0}, {0, 0}}, Store::Section::moment1);
  EXPECT_EQ(store.step_state().overflow, 1U);
}

// By hand: 0.5 |w| = 2.5 times (-0.6, 0.8) and the loss scale, of which 65536 and 32768 give more
// than fp16 holds. Without the scale, times the rate 0.5, it is (-0.75, 1).
TEST(LossScale, FallsUntilLarsFits) {
  Program program(apply_precision(two_parameters(lars_with(0.5, 0), {}), Precision::fp16),
                  open_backend("ref"));
  Store& store = program.store();
  set(store, {{3, 4}, {1, 2}});
  for (const float scale : {65536.0F, 32768.0F, 16384.0F}) {
    expect(store, {{3, 4}, {1, 2}});
    set(store, {{-384, 512}, {0, 0}}, Store::Section::gradient);
    enqueue_all(program);
    EXPECT_EQ(store.step_state().loss_scale, scale);
    EXPECT_EQ(store.step_state().overflow, scale > 16384 ? 1U : 0U);
  }
  expect(store, {{3.75F, 3}, {1, 2}});
  EXPECT_EQ(store.step_state().skipped, 2);
}

// In one pass over the decayed parameters and one over the others, in every kind of model.
TEST(Decay, OfMatricesLeavesOutBiasesAndNorms) {
  for (const char* model :
       {"mlp", "cifar10cnn", "mnist_cnn", "airbench", "resnet18", "toynet", "gpt2-nano"}) {
    StepOptions options;
    options.optimizer.weight_decay = 0.1;
    options.optimizer.decays_vectors = false;
    const Graph graph = model_step(model, 2, options_for(*open_backend("cpu"), options));
    std::size_t decayed = 0, others = 0, passes = 0;
    for (const Node& node : graph.nodes) {
      const auto* update = std::get_if<UpdateAll>(&node.op);
      if (!update) continue;
      ++passes;
      const std::size_t operands = Update{update->optimizer, update->copy}.operands();
      for (std::size_t i = 0; i < node.in.size(); i += operands) {
        const Value& value = graph.value(node.in[i]);
        const std::string& name = graph.parameters[idx(value.owner)].name;
        const bool decays = update->optimizer.weight_decay != 0;
        EXPECT_EQ(decays, value.type.shape.rank() >= 2) << model << ": " << name;
        EXPECT_FALSE(decays && name.ends_with(".bias")) << model << ": " << name;
        (decays ? decayed : others) += 1;
      }
    }
    EXPECT_EQ(passes, 2U) << model;
    EXPECT_EQ(decayed + others, graph.parameters.size()) << model;
    EXPECT_GT(others, 0U) << model;
  }
}

// To the nearest bf16 it would stay 1. The mean of 4,096 has a deviation of 0.2 %.
TEST_P(On, AMeanOfSquaresInBf16FallsThoughEachStepIsBelowItsRounding) {
  constexpr std::size_t count = 64 * 64;
  constexpr int updates = 2000;
  Optimizer adam;
  adam.moment_dtype = DType::bf16;
  Program program(two_parameters(adam, {}, {64, 64}), backend());
  Store& store = program.store();
  for (const auto& [section, value] : {std::pair{Store::Section::parameter, 0.5F},
                                       {Store::Section::gradient, 0.0F},
                                       {Store::Section::moment1, 0.0F},
                                       {Store::Section::moment2, 1.0F}})
    store.write(0, std::vector<float>(count, value), section);
  for (int update = 0; update < updates; ++update) enqueue_all(program);
  double mean = 0;
  for (const float v : store.read(0, Store::Section::moment2))
    mean += static_cast<double>(v) / static_cast<double>(count);
  const double expected = std::pow(0.999, updates);
  EXPECT_NEAR(mean, expected, 0.01 * expected);
  EXPECT_EQ(store.read(0), std::vector<float>(count, 0.5F));
}

// ---- accumulation

StepOptions accumulating(std::int64_t steps, const Backend& backend) {
  StepOptions options;
  options.optimizer = sgd();
  options.optimizer.momentum = 0.9;
  options.schedule.kind = Schedule::Kind::step;
  options.schedule.peak = 0.05;
  options.schedule.period_batches = 2;
  options.update = {.clip_norm = 0.5, .accumulate = steps, .average_decay = 0.5};
  return options_for(backend, options);
}

// Part `part` of the `parts` of one made-up batch of 32.
void load_part(Stepping& step, std::uint64_t seed, std::int64_t part, std::int64_t parts) {
  const Graph& graph = step.program.graph();
  const std::int64_t rows = 32 / parts;
  for (const int id : graph.inputs) {
    const Type& type = graph.value(id).type;
    const std::int64_t row = type.shape.count() / rows;
    std::vector<std::byte> plain(type.bytes());
    for (std::int64_t i = 0; i < type.shape.count(); ++i) {
      const auto at = static_cast<std::uint64_t>(part * rows * row + i);
      const std::uint32_t word =
          draw(seed, Purpose::synthetic, static_cast<std::uint32_t>(type.shape.rank()), at)[0];
      const auto label = static_cast<std::int32_t>(below(word, 10));
      if (type.dtype == DType::u8)
        plain[idx(i)] = static_cast<std::byte>(below(word, 256));
      else
        std::memcpy(&plain[idx(i) * sizeof(label)], &label, sizeof(label));
    }
    step.program.backend().write(graph.value(id), step.program.address(id), plain);
  }
}

void train(Stepping& step, std::int64_t first, std::int64_t last, std::int64_t parts) {
  for (std::int64_t s = first; s < last; ++s) {
    load_part(step, static_cast<std::uint64_t>(s / parts), s % parts, parts);
    enqueue_all(step.program);
  }
}

TEST_P(On, AnAccumulationIsOneLargeBatch) {
  const auto backend = this->backend();
  Stepping large(model_step("mlp", 32, accumulating(1, *backend)), backend);
  Stepping small(model_step("mlp", 8, accumulating(4, *backend)), backend);
  for (Stepping* step : {&large, &small}) step->program.store().initialize(1);
  train(large, 0, 3, 1);
  train(small, 0, 11, 4);
  const std::vector<std::vector<float>> before = small.parameters();
  EXPECT_EQ(small.program.store().step_state().update, 0U);
  train(small, 11, 12, 4);
  EXPECT_NE(before, small.parameters()) << "the update is in the last step";
  const StepState a = large.program.store().step_state(), b = small.program.store().step_state();
  EXPECT_EQ(b.step, 12);
  EXPECT_EQ(a.learning_rate, b.learning_rate) << "the schedule counts updates";
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-4F * a.gradient_norm);
  for (const auto section : {Store::Section::parameter, Store::Section::average})
    for (std::size_t p = 0; p < large.program.store().parameters().size(); ++p) {
      const std::vector<float> one = large.program.store().read(p, section);
      const std::vector<float> four = small.program.store().read(p, section);
      for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], four[i], 2e-6F);
    }
}

TEST(Accumulation, ContinuesFromACheckpointInItsMiddle) {
  const auto backend = open_backend("cpu", {.threads = 2});
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_update_test_{}.safetensors", ::getpid());
  Stepping alone(model_step("mlp", 8, accumulating(4, *backend)), backend);
  alone.program.store().initialize(1);
  train(alone, 0, 6, 4);
  save_checkpoint(path, alone.program.store(), Optimizer::Kind::sgd, {.step = 6}, {"mlp", "{}"});
  Stepping resumed(model_step("mlp", 8, accumulating(4, *backend)), backend);
  load_checkpoint(path, resumed.program.store(), Optimizer::Kind::sgd);
  EXPECT_EQ(resumed.program.store().step_state().micro_step, 1);
  for (Stepping* step : {&alone, &resumed}) train(*step, 6, 9, 4);
  EXPECT_EQ(alone.parameters(), resumed.parameters());
  for (std::size_t p = 0; p < alone.parameters().size(); ++p)
    EXPECT_EQ(alone.program.store().read(p, Store::Section::average),
              resumed.program.store().read(p, Store::Section::average));
  std::filesystem::remove(path);
}

// Of which a step that makes an update every time has no section.
TEST(Accumulation, IsNotLoadedFromItsMiddleByAStepWithoutIt) {
  const auto backend = open_backend("cpu", {.threads = 2});
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_update_test_middle_{}.safetensors", ::getpid());
  Stepping half(model_step("mlp", 8, accumulating(2, *backend)), backend);
  half.program.store().initialize(1);
  train(half, 0, 1, 2);
  save_checkpoint(path, half.program.store(), Optimizer::Kind::sgd, {.step = 1}, {"mlp", "{}"});
  Stepping whole(model_step("mlp", 8, accumulating(1, *backend)), backend);
  Store& store = whole.program.store();
  store.initialize(2);
  const std::vector<std::vector<float>> before = whole.parameters();
  EXPECT_THAT(
      [&] { load_checkpoint(path, store, Optimizer::Kind::sgd); },
      testing::ThrowsMessage<DataError>(testing::AllOf(
          testing::StartsWith(path.string()), testing::HasSubstr("saved between two updates"))));
  EXPECT_EQ(whole.parameters(), before);
  EXPECT_EQ(store.step_state().update, 1U);
  std::filesystem::remove(path);
}

TEST_P(On, AnEvaluationTakesTheAverage) {
  const auto backend = this->backend();
  Stepping step(model_step("mlp", 32, accumulating(1, *backend)), backend);
  step.program.store().initialize(1);
  train(step, 0, 2, 1);
  StepOptions forward;
  forward.training = false;
  Stepping evaluation(model_step("mlp", 32, options_for(*backend, forward)), backend);
  take_average(step.program.store(), evaluation.program.store());
  EXPECT_EQ(evaluation.program.store().read(0),
            step.program.store().read(0, Store::Section::average));
  EXPECT_NE(evaluation.program.store().read(0), step.program.store().read(0));
}

// ---- the order of the last calls

template <class Op>
std::ptrdiff_t place_of(const Graph& graph) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return std::holds_alternative<Op>(node.op);
  });
  return found - graph.nodes.begin();
}

TEST(Step, SumsChecksScalesUpdatesAndAverages) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    StepOptions options = accumulating(4, *open_backend("ref"));
    options.optimizer.kind = Optimizer::Kind::lars;
    options.precision = precision;
    const Graph g = model_step("mlp", 8, options);
    EXPECT_EQ(count<CheckGradients>(g), 1);
    EXPECT_LT(place_of<Accumulate>(g), place_of<CheckGradients>(g));
    EXPECT_LT(place_of<CheckGradients>(g), place_of<LarsScale>(g));
    EXPECT_LT(place_of<LarsScale>(g), place_of<UpdateAll>(g));
    EXPECT_LT(place_of<UpdateAll>(g), place_of<Average>(g));
    EXPECT_LT(place_of<Average>(g), place_of<Report>(g));
    for (const Node& node : g.nodes)
      for (const int id : node.in) {
        const Role role = g.value(id).role;
        if (role != Role::accumulator && role != Role::average) continue;
        EXPECT_EQ(g.value(id).type.dtype, DType::f32);
      }
    options.update = {};
    const Graph plain = model_step("mlp", 8, options);
    EXPECT_EQ(count<CheckGradients>(plain), precision == Precision::fp16 ? 1 : 0);
    EXPECT_EQ(count<Accumulate>(plain) + count<Average>(plain), 0);
    if (precision != Precision::fp16) continue;
    EXPECT_LT(place_of<CheckGradients>(plain), place_of<LarsScale>(plain));
  }
}

}  // namespace
}  // namespace warpstep

// Memory plans of whole models with their kernels' workspaces, and the report of the peak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/cpu_isa.h"
#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "engine/run/step_memory.h"
#include "models/build.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

struct Case {
  std::string_view model;
  std::int64_t batch, extent;  // extent 0: the model's own images
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " batch " << c.batch << " extent " << c.extent;
}

class PlanWithWorkspaces : public testing::TestWithParam<Case> {};

TEST_P(PlanWithWorkspaces, IsWithinTwoPercentOfTheBytesAliveAtOnce) {
  const Case& c = GetParam();
  const auto backend = open_backend("cpu");
  models::BuildOptions build = testing_support::test_build(c.model, c.batch);
  if (c.extent > 0) build.image = {c.extent, c.extent, 3};
  for (const bool training : {true, false}) {
    StepOptions options;
    options.training = training;
    Graph graph =
        compile_step(models::build(models::find(c.model), build), options_for(*backend, options));
    backend->choose_layouts(graph);
    std::vector<std::size_t> workspaces(graph.nodes.size());
    for (std::size_t n = 0; n < workspaces.size(); ++n)
      if (!is_view(graph.nodes[n].op))
        workspaces[n] = backend->bind(graph, graph.nodes[n])->workspace_bytes();
    const MemoryPlan plan = plan_memory(graph, workspaces, one_lane(graph));
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.02 * static_cast<double>(plan.bound_bytes))
        << (training ? "training" : "evaluation");
  }
}

std::vector<Case> cases() {
  std::vector<Case> all{{"resnet50", 8, 224}};
  for (const models::Model& model : models::zoo()) all.push_back({model.name, 128, 0});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, PlanWithWorkspaces, testing::ValuesIn(cases()));

// A device with little memory.
class Small final : public Backend {
 public:
  explicit Small(std::size_t most) : most_(most) {}
  std::string_view name() const override { return inner_->name(); }
  std::string describe() const override { return inner_->describe(); }
  void choose_layouts(Graph& graph) const override { inner_->choose_layouts(graph); }
  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    return inner_->bind(graph, node);
  }
  bool wants(std::string_view fusion) const override { return inner_->wants(fusion); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    if (bytes > most_) fail<DeviceError>("cannot allocate {} bytes", bytes);
    return inner_->allocate(bytes);
  }
  std::unique_ptr<Stream> make_stream(Precedence precedence) const override {
    return inner_->make_stream(precedence);
  }
  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    inner_->write(value, stored, plain);
  }
  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    inner_->read(value, stored, plain);
  }

 private:
  std::shared_ptr<Backend> inner_ = open_backend("cpu");
  std::size_t most_;
};

TEST(Program, NamesThePeakWhenMemoryDoesNotSuffice) {
  for (const std::size_t most : {std::size_t{1} << 10, std::size_t{64} << 20}) {
    const auto backend = std::make_shared<Small>(most);  // no parameters; parameters and no arena
    models::BuildOptions build;
    build.batch = 1 << 14;
    const Graph graph =
        compile_step(models::build(models::find("mlp"), build), options_for(*backend, {}));
    EXPECT_THAT(
        [&] { Program(graph, backend); },
        testing::ThrowsMessage<OutOfMemory>(testing::AllOf(
            testing::HasSubstr("cannot allocate "), testing::HasSubstr(" is the peak with "),
            testing::HasSubstr("the largest values are "))));
  }
}

// A large picture into a dense layer: most memory holds the weights, not the call with the largest
// values.
TEST(MemoryText, NamesWhatIsLarge) {
  const auto backend = open_backend("ref");  // in double
  const auto text_of = [&](std::int64_t extent, std::int64_t batch) {
    models::BuildOptions build;
    build.batch = batch;
    build.image = {extent, extent, 3};
    const StepMemory step = plan_step(
        compile_step(models::build(models::find("mlp"), build), options_for(*backend, {})),
        *backend);
    return memory_text(step.graph, step.plan);
  };
  const std::string large = text_of(1500, 2);
  EXPECT_THAT(large, testing::AllOf(testing::HasSubstr("parameters (26"),
                                    testing::HasSubstr("gradients (26"),
                                    testing::HasSubstr("moments of the optimiser (52"),
                                    testing::HasSubstr(" of that for fc1.weight"),
                                    testing::Not(testing::HasSubstr("is the peak"))));
  EXPECT_THAT(text_of(8, 1 << 16), testing::AllOf(testing::HasSubstr("is the peak with "),
                                                  testing::Not(testing::HasSubstr("moments"))));
  EXPECT_THAT(text_of(32, 256), testing::AllOf(testing::HasSubstr("is the peak with "),
                                               testing::HasSubstr("moments")));
}

// The memory planned without a program equals the memory of a run's programs.
TEST(PlanStep, SaysWhatProgramsTake) {
  for (const char* model : {"cifar10cnn", "resnet18"}) {
    const auto backend = open_backend("cpu");
    const auto graph = [&](bool training) {
      StepOptions options;
      options.training = training;
      models::BuildOptions build;
      build.batch = 32;
      return compile_step(models::build(models::find(model), build),
                          options_for(*backend, options));
    };
    const Program program(graph(true), backend);
    const Program evaluation(graph(false), backend, program.shared_store());
    const StepMemory step = plan_step(graph(true), *backend);
    const StepMemory shared = plan_step(graph(false), *backend, &step.graph);
    EXPECT_EQ(step.plan.arena_bytes, program.plan().arena_bytes) << model;
    EXPECT_EQ(shared.plan.arena_bytes, evaluation.plan().arena_bytes) << model;
    EXPECT_NEAR(static_cast<double>(step.persistent_bytes),
                static_cast<double>(program.store().bytes()), 1 << 17)
        << model;
    EXPECT_EQ(shared.persistent_bytes, 0U);
    EXPECT_EQ(step.input_bytes, slot_bytes(program.graph()));
    EXPECT_GT(step.input_bytes, 32U * 3);
  }
}

// They read and write rows of the tables as these are stored, and make no copies of whole tables.
TEST(EmbeddingsInBf16, TakeAWorkspaceThatTheVocabularyDoesNotEnlarge) {
  if (bf16_isa() == Bf16Isa::none) GTEST_SKIP() << "no bf16 in " << cpu_isa_text();
  const auto backend = open_backend("cpu");
  const auto workspaces = [&](std::int64_t vocabulary, Precision precision) {
    models::BuildOptions build = testing_support::test_build("gpt2", 2);
    build.vocabulary = vocabulary;
    StepOptions options;
    options.precision = precision;
    Graph graph =
        compile_step(models::build(models::find("gpt2"), build), options_for(*backend, options));
    backend->choose_layouts(graph);
    std::vector<std::size_t> bytes;
    for (const Node& node : graph.nodes)
      if (std::holds_alternative<Embed>(node.op) || std::holds_alternative<EmbedGrad>(node.op))
        bytes.push_back(backend->bind(graph, node)->workspace_bytes());
    return bytes;
  };
  const std::vector<std::size_t> few = workspaces(65, Precision::bf16);
  EXPECT_EQ(few.size(), 2U);
  EXPECT_EQ(few, workspaces(6500, Precision::bf16));
  EXPECT_EQ(few, workspaces(65, Precision::fp32));
}

}  // namespace
}  // namespace warpstep

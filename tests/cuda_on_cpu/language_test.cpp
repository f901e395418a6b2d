// A small language model as a whole training step of the CUDA backend: embeddings, layer norms with
// and without a sum, and a head on the table of tokens, call by call against the reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/run/runner.h"
#include "tests/runners.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::check_runner;
using testing_support::count;
using testing_support::open_tested_backend;
using testing_support::Stepping;

class LanguageModel : public testing::TestWithParam<Precision> {
 protected:
  // Neither the vocabulary nor the width is a multiple of 16 bytes.
  std::unique_ptr<Stepping> stepping(const std::string& backend) const {
    StepOptions options;
    options.precision = GetParam();
    options.schedule.peak = 1e-4;
    auto step = std::make_unique<Stepping>(
        compile_step(testing_support::language({.batch = 3, .vocabulary = 37, .width = 21}),
                     options),
        open_tested_backend(backend));
    step->program.store().initialize(1);
    return step;
  }
};

TEST_P(LanguageModel, AgreesWithTheReferenceCallByCall) {
  const auto ours = stepping("cuda_emulated"), theirs = stepping("ref");
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step, step == 1);
    theirs->load(step, step == 1);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
}

TEST_P(LanguageModel, OneGraphLaunchGivesTheBitsOfItsCalls) {
  const auto run = [&](Stepping& step, Runner& runner) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      step.load(i);
      runner.step();
      step.program.wait();
    }
    return step.parameters();
  };
  const auto calls = stepping("cuda_emulated"), graph = stepping("cuda_emulated");
  const auto eager = eager_runner(calls->program), replay = graph_runner(graph->program);
  EXPECT_EQ(run(*calls, *eager), run(*graph, *replay));
}

// The table has the rows that the head's product wants and the columns that the embedding wants; so
// have its gradient, the head's part of it, which is in the same place, its moments and its copy.
TEST_P(LanguageModel, StoresTheTableForBothOfItsUses) {
  const auto step = stepping("cuda_emulated");
  const Graph& graph = step->program.graph();
  EXPECT_EQ(count<Reorder>(graph), 0);
  const Parameter& table = *std::ranges::find(graph.parameters, "wte.weight", &Parameter::name);
  int stored = 0, gradients = 0;
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.value(static_cast<int>(id));
    if (value.owner < 0 || !is_persistent(value.role) || value.role == Role::buffer ||
        graph.parameters[idx(value.owner)].name != table.name)
      continue;
    EXPECT_EQ(value.layout.tag, "40x24") << value.name;
    ++stored;
    if (value.role != Role::gradient) continue;
    ++gradients;
    EXPECT_EQ(step->program.address(static_cast<int>(id)), step->program.address(table.gradient));
  }
  EXPECT_EQ(gradients, 2);
  EXPECT_GE(stored, 4);
}

// Attention by cuDNN in 16 bits, in both of its forms, for two sequences at a time and then one.
TEST_P(LanguageModel, ComputesAttentionInPiecesWithinTheWorkspaceCap) {
  for (const bool deterministic : {false, true}) {
    BackendOptions limited{.deterministic = deterministic, .workspace_cap = 25'000};
    if (deterministic) limited.workspace_cap = 300'000;
    const auto stepping = [&](std::shared_ptr<Backend> backend) {
      StepOptions options;
      options.precision = GetParam();
      auto step = std::make_unique<Stepping>(testing_support::model_step("gpt2-nano", 5, options),
                                             std::move(backend));
      step->program.store().initialize(1);
      step->load(0);
      return step;
    };
    const auto ours = stepping(open_tested_backend("cuda_emulated", limited));
    const auto theirs = stepping(open_backend("ref"));
    ASSERT_NO_THROW(check_runner(ours->program, theirs->program)->step());
    for (const Call& call : ours->program.calls())
      if (std::holds_alternative<AttentionGrad>(ours->program.graph().nodes[idx(call.node)].op)) {
        EXPECT_EQ(call.kernel->implementation(),
                  GetParam() == Precision::fp32 ? "without tensor cores (f32): attention_means + "
                                                  "attention_query_grad + attention_key_grad"
                                                : "3 x emulated loops");
      }
  }
}

INSTANTIATE_TEST_SUITE_P(, LanguageModel,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep

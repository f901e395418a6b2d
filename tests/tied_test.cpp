// A table that embeds tokens and is the weight of the head, too: one gradient, made in one place.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/run/runner.h"
#include "engine/run/step_memory.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::count;
using testing_support::Language;
using testing_support::language;
using testing_support::Stepping;

Graph step_of(const Language& options) {
  StepOptions step;
  step.optimizer.kind = Optimizer::Kind::sgd;
  step.schedule.peak = 0;  // the update leaves the parameters alone
  return compile_step(language(options), step);
}

const Parameter& parameter_of(const Graph& graph, std::string_view name) {
  return *std::ranges::find(graph.parameters, name, &Parameter::name);
}

std::vector<double> gradient_of(const Stepping& step, std::string_view name) {
  const Program& program = step.program;
  const int id = parameter_of(program.graph(), name).gradient;
  const auto* first = static_cast<const double*>(program.address(id));
  return {first, first + program.graph().value(id).type.shape.count()};
}

// One step on the reference, from parameters that depend on their names' order in `like` alone:
// those of the head are the table's.
void run(Stepping& step) {
  Store& store = step.program.store();
  store.initialize(5);
  const Graph& graph = step.program.graph();
  const auto index = [&](std::string_view name) {
    return idx(&parameter_of(graph, name) - graph.parameters.data());
  };
  if (std::ranges::count(graph.parameters, "lm_head.weight", &Parameter::name) > 0)
    store.write(index("lm_head.weight"), store.read(index("wte.weight")));
  step.load(1);
  for (std::size_t c = 0; c < step.program.calls().size(); ++c) step.program.enqueue(c);
}

TEST(TiedTable, HasTheSumOfBothGradientsWithoutAnAddition) {
  Stepping tied(step_of({}), open_backend("ref")),
      apart(step_of({.tied = false}), open_backend("ref"));
  for (Stepping* step : {&tied, &apart}) run(*step);
  const auto loss = [](const Stepping& step) { return step.program.loss(); };
  ASSERT_EQ(loss(tied), loss(apart));
  const std::vector<double> whole = gradient_of(tied, "wte.weight"),
                            of_tokens = gradient_of(apart, "wte.weight"),
                            of_head = gradient_of(apart, "lm_head.weight");
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(whole[i], of_tokens[i] + of_head[i], 1e-14) << i;
    largest = std::max({largest, std::abs(of_tokens[i]), std::abs(of_head[i])});
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_EQ(gradient_of(tied, "wpe.weight"), gradient_of(apart, "wpe.weight"));

  const Graph& graph = tied.program.graph();
  EXPECT_EQ(count<Add>(graph), count<Add>(apart.program.graph()));
  const auto embed = std::ranges::find_if(
      graph.nodes, [](const Node& node) { return std::holds_alternative<EmbedGrad>(node.op); });
  ASSERT_NE(embed, graph.nodes.end());
  EXPECT_TRUE(std::get<EmbedGrad>(embed->op).sum);
  EXPECT_EQ(tied.program.address(embed->in[3]), tied.program.address(embed->out[0]));
}

// Neither part of the gradient is in the arena, and the store has one.
TEST(TiedTable, HasOneGradientInMemory) {
  const Language large{.batch = 2, .sequence = 8, .vocabulary = 4000, .width = 64};
  const auto backend = open_backend("ref");
  const std::size_t table = idx(large.vocabulary * large.width) * sizeof(double);
  const StepMemory tied = plan_step(step_of(large), *backend);
  for (const MemoryPlan::Buffer& buffer : tied.plan.buffers)
    EXPECT_LT(buffer.lifetime.bytes, table) << buffer.name;
  Language untied = large;
  untied.tied = false;
  const StepMemory apart = plan_step(step_of(untied), *backend);
  const Graph& graph = tied.graph;
  const std::size_t kept = 2 + parameter_of(graph, "wte.weight").moments.size();
  EXPECT_EQ(apart.persistent_bytes - tied.persistent_bytes, kept * table);
}

}  // namespace
}  // namespace warpstep

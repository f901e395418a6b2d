// The planner on the layouts and workspaces that a backend's libraries choose.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/compile.h"
#include "engine/memory.h"
#include "models/zoo.h"

namespace warpstep {
namespace {

struct Case {
  const char* model;
  std::int64_t batch, extent;  // extent 0: the model's own images
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " batch " << c.batch << " extent " << c.extent;
}

class PlanOnLayouts : public testing::TestWithParam<Case> {};

TEST_P(PlanOnLayouts, IsWithinTwoPercentOfTheBytesAliveAtOnce) {
  const Case& c = GetParam();
  const auto backend = open_backend("cpu");
  models::BuildOptions build;
  build.batch = c.batch;
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
    const MemoryPlan plan = plan_memory(graph, workspaces);
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.02 * static_cast<double>(plan.bound_bytes))
        << (training ? "training" : "evaluation");
  }
}

std::vector<Case> cases() {
  std::vector<Case> all{{"resnet50", 8, 224}};
  for (const models::Model& model : models::zoo()) all.push_back({model.name.data(), 128, 0});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, PlanOnLayouts, testing::ValuesIn(cases()));

}  // namespace
}  // namespace warpstep

// The planner on random graphs, simulated on memory cells, and on every model: the arena must be
// close to the minimum.
#include "engine/passes/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/graph/layers.h"
#include "engine/run/backend.h"
#include "tests/placements.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::Dice;
using testing_support::expect_sound;

// A random graph of pointwise nodes, views and sums over a few values; the first input is given.
Graph random_graph(Dice& dice) {
  Graph graph;
  std::vector<Tensor> made{graph.input("x", {DType::f32, {2 + dice.below(40), 6}})};
  const auto any = [&] { return made[dice.below(static_cast<std::uint32_t>(made.size()))]; };
  const std::uint32_t nodes = 1 + dice.below(30);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const Tensor x = any();
    switch (dice.below(4)) {
      case 0: made.push_back(relu(x)); break;
      case 1: {
        const Shape& s = x.type().shape;
        const Shape turned{s[1], s[0]};
        made.push_back(graph.record(Phase::forward, Reshape{turned}, {x}, "", Where::current())[0]);
        break;
      }
      case 2: {
        const Tensor y = any();
        if (y.type() == x.type()) made.push_back(add(x, y));
        break;
      }
      default:
        made.push_back(graph.record(Phase::forward, LogSoftmax{}, {x}, "", Where::current())[0]);
    }
  }
  graph.logits = made.back().id;
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  return graph;
}

// Simulates the step on memory cells that remember the last value written: each node must find its
// inputs, and the result must be there at the end.
void expect_playable(const Graph& graph, const MemoryPlan& plan,
                     std::span<const std::size_t> workspaces) {
  std::vector<int> cell(plan.arena_bytes / arena_alignment, -1);
  std::vector<int> content(graph.values.size());
  for (std::size_t id = 0; id < content.size(); ++id) content[id] = static_cast<int>(id);
  const auto each_cell = [&](std::size_t offset, std::size_t bytes, auto visit) {
    for (std::size_t at = offset / arena_alignment; at * arena_alignment < offset + bytes; ++at)
      visit(cell[at]);
  };
  const auto on_value = [&](int id, auto visit) {
    const int buffer = plan.buffer_of_value[idx(id)];
    if (buffer < 0) return;
    each_cell(plan.buffers[idx(buffer)].offset, graph.value(id).layout.bytes, visit);
  };
  const auto expect_there = [&](int id) {
    on_value(id, [&](int& c) { ASSERT_EQ(c, content[idx(id)]) << graph.value(id).name; });
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (is_view(node.op)) {
      content[idx(node.out[0])] = content[idx(node.in[0])];
      ASSERT_EQ(plan.buffer_of_value[idx(node.out[0])], plan.buffer_of_value[idx(node.in[0])]);
      continue;
    }
    const int workspace = plan.workspace_of_node[n];
    if (workspace >= 0)
      each_cell(plan.buffers[idx(workspace)].offset, workspaces[n], [](int& c) { c = -2; });
    // An output is written before the last input is read, unless it takes one's place.
    const auto takes_over = [&](int id) {
      const int output = in_place_output(node.op);
      return output >= 0 && id == node.out[idx(output)] &&
             std::ranges::any_of(in_place_inputs(node.op), [&](int i) {
               return plan.buffer_of_value[idx(node.in[idx(i)])] == plan.buffer_of_value[idx(id)];
             });
    };
    for (const int id : node.out)
      if (!takes_over(id)) on_value(id, [](int& c) { c = -3; });
    for (const int id : node.in) expect_there(id);
    for (const int id : node.out) on_value(id, [&](int& c) { c = content[idx(id)]; });
  }
  if (graph.logits >= 0) expect_there(graph.logits);
}

// An op of a user's, of any number of operands, whose first output may lie in those given.
class InPlace final : public CustomOp {
 public:
  explicit InPlace(std::vector<int> operands) : operands_(std::move(operands)) {}
  std::string_view name() const override { return "in_place"; }
  Types infer(const Types& in) const override { return {in[0]}; }
  Cost cost(const Types&, const Types&) const override { return {}; }
  std::vector<int> in_place_inputs() const override { return operands_; }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    return nullptr;
  }

 private:
  std::vector<int> operands_;
};

// Whether such an op's output takes over the buffer of a value that dies there, its operand 0.
bool takes_over(const std::vector<int>& named, const auto& operands) {
  Graph graph;
  const Tensor x = relu(graph.input("x", {DType::f32, {4, 2, 3}}));
  const Tensor y = custom("op", std::make_shared<InPlace>(named), operands(x));
  graph.logits = y.id;
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  const MemoryPlan plan = plan_memory(graph, {}, one_lane(graph));
  return plan.buffer_of_value[idx(y.id)] == plan.buffer_of_value[idx(x.id)];
}

TEST(PlanMemory, TakesOverNoBufferThatAnotherOperandReads) {
  using Operands = std::vector<Tensor>;
  const auto flat = [](Tensor x) {
    return x.graph->record(Phase::forward, Reshape{{24}}, {x}, "", Where::current())[0];
  };
  EXPECT_FALSE(takes_over({}, [](Tensor x) { return Operands{x}; }));
  EXPECT_TRUE(takes_over({0}, [](Tensor x) { return Operands{x}; }));
  EXPECT_TRUE(takes_over({0}, [](Tensor x) { return Operands{x, relu(x)}; }));
  EXPECT_FALSE(takes_over({0}, [](Tensor x) { return Operands{x, x, x}; }));
  EXPECT_FALSE(takes_over({0}, [&](Tensor x) { return Operands{x, flat(x)}; }));
  EXPECT_FALSE(takes_over({1}, [&](Tensor x) { return Operands{flat(x), x}; }));
  EXPECT_FALSE(takes_over({0, 1}, [](Tensor x) { return Operands{x, x, x}; }));
  EXPECT_TRUE(takes_over({0, 1}, [](Tensor x) { return Operands{x, x}; }));
  EXPECT_TRUE(takes_over({0, 1}, [&](Tensor x) { return Operands{x, flat(x)}; }));
}

TEST(PlanMemory, LetsASumOfAValueWithItselfWorkInPlace) {
  Graph graph;
  const Tensor x = relu(graph.input("x", {DType::f32, {4, 6}})), y = add(x, x);
  graph.logits = y.id;
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  const MemoryPlan plan = plan_memory(graph, {}, one_lane(graph));
  EXPECT_EQ(plan.buffer_of_value[idx(y.id)], plan.buffer_of_value[idx(x.id)]);
}

// An evaluation's logits are read when it is over.
TEST(PlanMemory, KeepsTheLogitsOfAnEvaluation) {
  Graph graph;
  const Tensor x = relu(graph.input("x", {DType::f32, {4, 6}})), y = relu(x), z = relu(y);
  graph.logits = x.id;
  graph.loss = z.id;
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  const MemoryPlan plan = plan_memory(graph, {}, one_lane(graph));
  const int kept = plan.buffer_of_value[idx(x.id)];
  EXPECT_EQ(plan.buffers[idx(kept)].lifetime.last, 2);
  EXPECT_NE(plan.buffer_of_value[idx(y.id)], kept);
}

void expect_sound_plan(const MemoryPlan& plan) {
  std::vector<Lifetime> lives;
  std::vector<std::size_t> offsets;
  for (const MemoryPlan::Buffer& buffer : plan.buffers) {
    lives.push_back(buffer.lifetime);
    offsets.push_back(buffer.offset);
  }
  expect_sound(lives, offsets, plan.arena_bytes);
  ASSERT_EQ(plan.bound_bytes, live_bound(lives));
  ASSERT_GE(plan.separate_bytes, plan.bound_bytes);
}

TEST(PlanMemory, KeepsEveryValueOfARandomGraphUntilItsLastReader) {
  Dice dice(3);
  int in_place = 0;
  for (int round = 0; round < 3000; ++round) {
    const Graph graph = random_graph(dice);
    std::vector<std::size_t> workspaces(graph.nodes.size());
    for (std::size_t n = 0; n < workspaces.size(); ++n)
      if (!is_view(graph.nodes[n].op) && dice.below(3) == 0) workspaces[n] = 1 + dice.below(3000);
    const MemoryPlan plan = plan_memory(graph, workspaces, one_lane(graph));
    expect_sound_plan(plan);
    if (!HasFatalFailure()) expect_playable(graph, plan, workspaces);
    if (HasFatalFailure()) FAIL() << "round " << round;
    std::size_t values = 0;
    for (const Node& node : graph.nodes) values += is_view(node.op) ? 0 : 1;
    for (const std::size_t bytes : workspaces) values += bytes > 0 ? 1 : 0;
    in_place += values > plan.buffers.size() ? 1 : 0;
  }
  EXPECT_GT(in_place, 100) << "the graphs hardly ever let an op work in place";
}

struct Step {
  std::string_view model;
  std::int64_t batch;
  bool training;
};
void PrintTo(const Step& step, std::ostream* out) {
  *out << step.model << " batch " << step.batch << (step.training ? " training" : " evaluation");
}

class PlanOfModel : public testing::TestWithParam<Step> {};

// The project's limit: 2 % above the bytes alive at once, also with workspaces of any size at a
// quarter of the nodes.
TEST_P(PlanOfModel, IsWithinTwoPercentOfTheBytesAliveAtOnce) {
  StepOptions options;
  options.training = GetParam().training;
  Dice dice(4);
  for (int round = 0; round < 40; ++round) {
    options.no_fuse.clear();
    for (const FusionRow& row : fusion_table())
      if (round > 0 && dice.below(3) == 0) options.no_fuse.emplace(row.name);
    Graph graph = testing_support::model_step(GetParam().model, GetParam().batch, options);
    for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
    std::vector<std::size_t> workspaces(graph.nodes.size());
    for (std::size_t n = 0; n < workspaces.size(); ++n)
      if (round > 0 && !is_view(graph.nodes[n].op) && dice.below(4) == 0)
        workspaces[n] = 1 + dice.below(1U << (10 + dice.below(14)));
    const MemoryPlan plan = plan_memory(graph, workspaces, one_lane(graph));
    expect_sound_plan(plan);
    if (HasFatalFailure()) FAIL() << "round " << round;
    EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.02 * static_cast<double>(plan.bound_bytes))
        << "round " << round;
  }
}

std::vector<Step> steps() {
  std::vector<Step> all;
  for (const models::Model& model : models::zoo())
    for (const std::int64_t batch : {1, 32, 128})
      for (const bool training : {true, false}) all.push_back({model.name, batch, training});
  return all;
}

std::string planned_step(const testing::TestParamInfo<Step>& step) {
  std::string name = fmt::format("{}_{}_of_{}", step.param.model,
                                 step.param.training ? "training" : "evaluation", step.param.batch);
  std::ranges::replace(name, '-', '_');  // which GoogleTest does not allow
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, PlanOfModel, testing::ValuesIn(steps()), planned_step);

TEST(MemoryPlan, ListsWhatIsAliveLargestFirst) {
  MemoryPlan plan;
  plan.buffers = {{"early", {10, 0, 1}, 0}, {"small", {20, 1, 3}, 0}, {"large", {30, 2, 2}, 0}};
  EXPECT_EQ(plan.alive_at(2), (std::vector{2, 1}));
  EXPECT_EQ(plan.alive_at(0), (std::vector{0}));
}

}  // namespace
}  // namespace warpstep

// Two lanes against brute force: nodes that may run in parallel share no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitset>
#include <set>

#include "engine/passes/memory.h"
#include "tests/placements.h"
#include "tests/random_models.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

// The order of events in lanes: a lane's nodes in order; a node of a side lane after all nodes of
// lower lanes that were enqueued before it; the first lane's `waited_at` node after it.
using Nodes = std::bitset<2048>;

std::vector<Nodes> what_happens_before(const Lanes& lanes) {
  const std::size_t n = lanes.lane.size();
  std::vector<Nodes> before(n);
  for (std::size_t b = 0; b < n; ++b)
    for (std::size_t a = 0; a < b; ++a) {
      const bool forked = lanes.lane[b] >= lanes.lane[a];
      const bool joined =
          lanes.lane[a] > 0 && lanes.lane[b] == 0 && lanes.waited_at[a] <= static_cast<int>(b);
      if (forked || joined) before[b] |= before[a], before[b].set(a);
    }
  return before;
}

// Buffers of the arena that a node reads, and that it writes.
struct Touched {
  std::set<int> read, written;
};

Touched touched(const Graph& graph, const MemoryPlan& plan, std::size_t node) {
  Touched all;
  for (const int id : graph.nodes[node].in) all.read.insert(plan.buffer_of_value[idx(id)]);
  for (const int id : graph.nodes[node].out) all.written.insert(plan.buffer_of_value[idx(id)]);
  all.written.insert(plan.workspace_of_node[node]);
  all.read.erase(-1);
  all.written.erase(-1);
  return all;
}

// Whether a byte of `written` belongs to one of `others`: the same buffer, or one at its place.
bool clashes(const MemoryPlan& plan, const std::set<int>& written, const std::set<int>& others) {
  for (const int w : written)
    for (const int o : others) {
      const MemoryPlan::Buffer &a = plan.buffers[idx(w)], &b = plan.buffers[idx(o)];
      if (a.offset < b.offset + b.lifetime.bytes && b.offset < a.offset + a.lifetime.bytes)
        return true;
    }
  return false;
}

// Whether a node writes or changes in place what the other one reads or writes, wherever it lies.
bool changes_what_is_used(const Graph& graph, const Node& one, const Node& other) {
  const auto has = [](const std::vector<int>& ids, int id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  const auto is_used = [&](int id) { return has(other.in, id) || has(other.out, id); };
  return std::ranges::any_of(one.out, is_used) || std::ranges::any_of(one.in, [&](int id) {
           return changes(one.op, graph.value(id).role) && is_used(id);
         });
}

// Every pair of nodes that may run side by side; returns how many pairs there are.
std::size_t expect_apart(Graph graph, const std::string& what) {
  open_backend("ref")->choose_layouts(graph);
  const Lanes lanes = with_exchange_lane(two_lanes(graph), graph);
  EXPECT_LE(graph.nodes.size(), Nodes().size());
  const std::vector<std::size_t> workspaces(graph.nodes.size(), 5000);
  const MemoryPlan plan = plan_memory(graph, workspaces, lanes);
  const std::vector<Nodes> before = what_happens_before(lanes);
  std::size_t side_by_side = 0;
  for (std::size_t b = 0; b < graph.nodes.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) {
      if (before[b][a] || is_view(graph.nodes[a].op) || is_view(graph.nodes[b].op)) continue;
      ++side_by_side;
      const Touched first = touched(graph, plan, a), second = touched(graph, plan, b);
      EXPECT_FALSE(clashes(plan, first.written, second.written) ||
                   clashes(plan, first.written, second.read) ||
                   clashes(plan, second.written, first.read))
          << what << ": " << graph.nodes[a].title() << " and " << graph.nodes[b].title();
      EXPECT_FALSE(changes_what_is_used(graph, graph.nodes[a], graph.nodes[b]) ||
                   changes_what_is_used(graph, graph.nodes[b], graph.nodes[a]))
          << what << ": " << graph.nodes[a].title() << " and " << graph.nodes[b].title();
    }
  return side_by_side;
}

// As stored in fp32, and in fp16 with every norm that can be computed within a convolution.
TEST(TwoLanes, NothingThatRunsSideBySideSharesMemory) {
  StepOptions plain, fused;
  fused.precision = Precision::fp16;
  fused.computes = [](const AnyOp&, const Types&) { return true; };
  for (const models::Model& model : models::zoo())
    for (const StepOptions& options : {plain, fused}) {
      const std::string what = fmt::format("{} in {}", model.name, name(options.precision));
      EXPECT_GE(expect_apart(testing_support::model_step(model.name, 4, options), what), 3U)
          << what << ": nothing overlaps";
    }
}

// Models drawn at random, in any precision, with recomputation, ranks and sums over steps.
TEST(TwoLanes, NorDoesItInRandomModels) {
  std::size_t side_by_side = 0;
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    testing_support::Dice dice(seed);
    const Graph graph =
        testing_support::RandomModel(seed, testing_support::Cancelling::any).build();
    StepOptions options;
    options.precision =
        std::array{Precision::fp32, Precision::fp16, Precision::bf16}[dice.below(3)];
    options.computes = [](const AnyOp&, const Types&) { return true; };
    options.statistics = dice.below(3) == 0;
    if (dice.below(3) == 0) options.recompute = testing_support::scopes_of(graph);
    options.update.clip_norm = dice.below(2);
    options.update.accumulate = 1 + dice.below(2);
    options.update.average_decay = dice.below(3) == 0 ? 0.9 : 0;
    options.update.replica.ranks = 1 + dice.below(2);
    options.exchange = {.in_f32 = dice.below(2) == 0, .bucket_bytes = dice.below(3) * 500};
    options.sync_norms = options.update.replica.ranks > 1 && dice.below(2) == 0;
    options.shard_optimizer = options.update.replica.ranks > 1 && dice.below(3) == 0;
    side_by_side += expect_apart(compile_step(graph, options), fmt::format("seed {}", seed));
  }
  EXPECT_GT(side_by_side, 2000U);
}

// One layer three times, with the gradients of its weight added up.
TEST(TwoLanes, NorDoesItWhereAWeightIsUsedMoreThanOnce) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 16}});
  const Tensor labels = g.input("labels", {DType::i32, {4}});
  const Tensor first = linear("fc", relu(linear("in", x, {.out = 16})), {.out = 16});
  const Tensor second = twin(relu(first), first);
  const Tensor third = twin(relu(add(first, second)), first);
  cross_entropy(linear("out", add(third, relu(second)), {.out = 10}), labels);
  EXPECT_GE(expect_apart(compile_step(std::move(g), {}), "twins"), 3U);
}

// The node that runs last beside a reader of another lane may not write over what that reads.
TEST(TwoLanes, NothingWorksInPlaceOnWhatTheOtherLaneReads) {
  Graph graph;
  const Tensor x = graph.input("x", {DType::f32, {8, 64}});
  const Tensor read = relu(x), beside = relu(read), after = relu(read);
  graph.logits = relu(add(beside, after)).id;
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  Lanes lanes = one_lane(graph);
  lanes.lane[1] = Lanes::weight_gradients;
  const std::vector<std::size_t> none(graph.nodes.size());
  for (const int waited_at : {2, 3}) {
    lanes.waited_at[1] = waited_at;
    const MemoryPlan plan = plan_memory(graph, none, lanes);
    const bool in_place = plan.buffer_of_value[idx(after.id)] == plan.buffer_of_value[idx(read.id)];
    EXPECT_EQ(in_place, waited_at == 2) << "waited for by node " << waited_at;
  }
}

}  // namespace
}  // namespace warpstep

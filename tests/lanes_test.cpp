// Two lanes against brute force: nodes that may run in parallel share no memory.
#include <gtest/gtest.h>

#include <set>

#include "engine/passes/memory.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

// The order of events in two lanes: a lane's nodes in order; a node of the second lane after all
// nodes of the first that were enqueued before it; the first lane's `waited_at` node after it.
std::vector<std::vector<bool>> happens_before(const Lanes& lanes) {
  const std::size_t n = lanes.lane.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  for (std::size_t b = 0; b < n; ++b)
    for (std::size_t a = 0; a < b; ++a) {
      const bool same = lanes.lane[a] == lanes.lane[b], forked = lanes.lane[b] == 1;
      const bool joined =
          lanes.lane[a] == 1 && lanes.lane[b] == 0 && lanes.waited_at[a] <= static_cast<int>(b);
      before[a][b] = same || forked || joined;
    }
  for (std::size_t k = 0; k < n; ++k)  // transitive
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        before[a][b] = before[a][b] || (before[a][k] && before[k][b]);
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

TEST(TwoLanes, NothingThatRunsSideBySideSharesMemory) {
  for (const char* model : {"cifar10cnn", "mlp"}) {
    Graph graph = testing_support::model_step(model, 4);
    open_backend("ref")->choose_layouts(graph);
    const Lanes lanes = two_lanes(graph);
    ASSERT_TRUE(lanes.used());
    const std::vector<std::size_t> workspaces(graph.nodes.size(), 5000);
    const MemoryPlan plan = plan_memory(graph, workspaces, lanes);
    const auto before = happens_before(lanes);
    std::size_t side_by_side = 0;
    for (std::size_t b = 0; b < graph.nodes.size(); ++b)
      for (std::size_t a = 0; a < b; ++a) {
        if (before[a][b] || is_view(graph.nodes[a].op) || is_view(graph.nodes[b].op)) continue;
        ++side_by_side;
        const Touched first = touched(graph, plan, a), second = touched(graph, plan, b);
        EXPECT_FALSE(clashes(plan, first.written, second.written) ||
                     clashes(plan, first.written, second.read) ||
                     clashes(plan, second.written, first.read))
            << model << ": " << graph.nodes[a].title() << " and " << graph.nodes[b].title();
      }
    EXPECT_GE(side_by_side, 3U) << model << ": nothing overlaps";
  }
}

}  // namespace
}  // namespace warpstep

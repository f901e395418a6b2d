#include "engine/memory.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"

namespace warpstep {
namespace {

// Which value's memory each value is: a view is what it views.
std::vector<int> storage_of_values(const Graph& graph) {
  std::vector<int> storage(graph.values.size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Node& node : graph.nodes)
    if (is_view(node.op)) storage[idx(node.out[0])] = storage[idx(node.in[0])];
  return storage;
}

std::vector<int> last_uses(const Graph& graph, const std::vector<int>& storage,
                           const Lanes& lanes) {
  std::vector<int> last(graph.values.size(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const auto* ids : {&graph.nodes[n].in, &graph.nodes[n].out})
      for (const int id : *ids) {
        int& use = last[idx(storage[idx(id)])];
        use = std::max(use, lanes.busy_until(static_cast<int>(n)));
      }
  for (const int id : {graph.loss, graph.correct, graph.logits})  // read when the step is over
    if (id >= 0) last[idx(storage[idx(id)])] = static_cast<int>(graph.nodes.size()) - 1;
  return last;
}

// The buffer of an input of `node` that its first output may take over, or -1.
int inherited_buffer(const Graph& graph, const Node& node, const MemoryPlan& plan) {
  const Value& out = graph.value(node.out[0]);
  const int self = static_cast<int>(&node - graph.nodes.data());
  for (const int k : in_place_inputs(node.op)) {
    const int in = node.in[idx(k)];
    const int buffer = plan.buffer_of_value[idx(plan.storage_of_value[idx(in)])];
    if (buffer < 0 || plan.buffers[idx(buffer)].lifetime.last != self) continue;
    if (graph.value(in).layout.tag == out.layout.tag &&
        graph.value(in).layout.bytes == out.layout.bytes)
      return buffer;
  }
  return -1;
}

void assign_buffers(const Graph& graph, std::span<const std::size_t> workspaces, const Lanes& lanes,
                    MemoryPlan& plan) {
  const std::vector<int> last = last_uses(graph, plan.storage_of_value, lanes);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (std::size_t i = 0; i < node.out.size() && !is_view(node.op); ++i) {
      const int id = node.out[i];
      if (is_persistent(graph.value(id).role)) continue;
      plan.separate_bytes += align_up(graph.value(id).layout.bytes);
      int buffer = i == 0 ? inherited_buffer(graph, node, plan) : -1;
      if (buffer < 0) {
        buffer = static_cast<int>(plan.buffers.size());
        plan.buffers.push_back(
            {graph.value(id).name, {graph.value(id).layout.bytes, static_cast<int>(n), 0}, 0});
      }
      plan.buffers[idx(buffer)].lifetime.last = last[idx(id)];
      plan.buffer_of_value[idx(id)] = buffer;
    }
    if (n < workspaces.size() && workspaces[n] > 0) {
      plan.workspace_of_node[n] = static_cast<int>(plan.buffers.size());
      plan.separate_bytes += align_up(workspaces[n]);
      plan.buffers.push_back(
          {node.title() + " workspace",
           {workspaces[n], static_cast<int>(n), lanes.busy_until(static_cast<int>(n))},
           0});
    }
  }
}

}  // namespace

std::vector<int> MemoryPlan::alive_at(int node) const {
  std::vector<int> alive;
  for (std::size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].lifetime.first <= node && node <= buffers[b].lifetime.last)
      alive.push_back(static_cast<int>(b));
  std::stable_sort(alive.begin(), alive.end(), [&](int a, int b) {
    return buffers[idx(a)].lifetime.bytes > buffers[idx(b)].lifetime.bytes;
  });
  return alive;
}

MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> workspaces) {
  return plan_memory(graph, workspaces, one_lane(graph));
}

MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> workspaces,
                       const Lanes& lanes) {
  MemoryPlan plan;
  plan.storage_of_value = storage_of_values(graph);
  plan.buffer_of_value.assign(graph.values.size(), -1);
  plan.workspace_of_node.assign(graph.nodes.size(), -1);
  assign_buffers(graph, workspaces, lanes, plan);
  for (std::size_t id = 0; id < graph.values.size(); ++id)
    plan.buffer_of_value[id] = plan.buffer_of_value[idx(plan.storage_of_value[id])];

  std::vector<Lifetime> lifetimes;
  for (const MemoryPlan::Buffer& buffer : plan.buffers) lifetimes.push_back(buffer.lifetime);
  const Placement placement = place(lifetimes);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    plan.buffers[b].offset = placement.offsets[b];
  plan.arena_bytes = placement.bytes;
  const std::vector<std::size_t> live = live_bytes(lifetimes);
  plan.peak_node = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  plan.bound_bytes = live_bound(lifetimes);
  return plan;
}

}  // namespace warpstep

#include "engine/passes/schedule.h"

#include <algorithm>
#include <set>

#include "engine/core/error.h"

namespace warpstep {
namespace {

// Nodes whose result is read after the step, changes a persistent value, or is needed by such a
// node; in a training step, which reports, also those that may change a buffer.
std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> value(graph.values.size()), node(graph.nodes.size());
  const bool trains = graph.report >= 0;
  for (const int id : {graph.loss, graph.correct, graph.logits})
    if (id >= 0) value[idx(id)] = true;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& candidate = graph.nodes[n];
    // Updates and the clock work in place.
    node[n] = candidate.out.empty() || (trains && may_change_buffer(graph, candidate));
    for (const int id : candidate.out)
      node[n] = node[n] || value[idx(id)] || is_persistent(graph.value(id).role);
    if (node[n])
      for (const int id : candidate.in) value[idx(id)] = true;
  }
  return node;
}

void check_order(const Graph& graph) {
  const std::vector<int> producers = graph.producers();
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const int id : graph.nodes[n].in)
      if (producers[idx(id)] >= static_cast<int>(n))
        fail<Error>("{} needs {} before it is made", graph.nodes[n].title(), graph.value(id).name);
}

}  // namespace

bool may_change_buffer(const Graph& graph, const Node& node) {
  return std::holds_alternative<Custom>(node.op) &&
         std::ranges::any_of(node.in, [&](int id) { return graph.value(id).role == Role::buffer; });
}

Graph schedule(Graph graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<Node> kept;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (needed[n]) kept.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(kept);
  check_order(graph);
  return graph;
}

bool Lanes::used() const {
  return used(weight_gradients) || used(exchange);
}
bool Lanes::used(int which) const {
  return std::ranges::find(lane, which) != lane.end();
}

int Lanes::busy_until(int node) const {
  return lane[idx(node)] == 0 ? node : waited_at[idx(node)] - 1;
}

Lanes one_lane(const Graph& graph) {
  return {std::vector<int>(graph.nodes.size(), 0), std::vector<int>(graph.nodes.size(), -1)};
}

namespace {

// What waits must be a call of lane 0.
void wait_at_calls(Lanes& lanes, const Graph& graph) {
  for (int& at : lanes.waited_at)
    while (at >= 0 && at < static_cast<int>(graph.nodes.size()) &&
           (lanes.lane[idx(at)] != 0 || is_view(graph.nodes[idx(at)].op)))
      ++at;
}

}  // namespace

Lanes two_lanes(const Graph& graph) {
  constexpr std::size_t window = 2;
  // More fill a device by themselves, and what runs beside them waits for its multiprocessors: on
  // an H200 GPT-2's and ResNet-50's steps took 1 and 2 % longer with them in a lane of their own.
  constexpr double most_flops_beside = 4e9;
  Lanes lanes = one_lane(graph);
  std::vector<int> consumer(graph.values.size(), static_cast<int>(graph.nodes.size()));
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    if (std::holds_alternative<AllReduce>(graph.nodes[n].op)) continue;  // in a lane that waits
    for (const int id : graph.nodes[n].in) consumer[idx(id)] = static_cast<int>(n);
  }
  std::vector<int> second_lane;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].phase != Phase::weight_grad || is_view(graph.nodes[n].op)) continue;
    if (graph.cost(graph.nodes[n]).flops > most_flops_beside) continue;
    second_lane.push_back(static_cast<int>(n));
    lanes.lane[n] = Lanes::weight_gradients;
    lanes.waited_at[n] = static_cast<int>(graph.nodes.size());
    for (const int id : graph.nodes[n].out)
      lanes.waited_at[n] = std::min(lanes.waited_at[n], consumer[idx(id)]);
    // Waited for by the first node of lane 0 after the weight gradient `window` later.
    if (second_lane.size() <= window) continue;
    int& waited_at = lanes.waited_at[idx(second_lane[second_lane.size() - 1 - window])];
    waited_at = std::min(waited_at, static_cast<int>(n) + 1);
  }
  wait_at_calls(lanes, graph);
  return lanes;
}

Lanes with_exchange_lane(Lanes lanes, const Graph& graph) {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!std::holds_alternative<AllReduce>(graph.nodes[n].op)) continue;
    const std::set<int> summed(graph.nodes[n].in.begin(), graph.nodes[n].in.end());
    const auto reads = [&](const Node& node) {
      return std::ranges::any_of(node.in, [&](int id) { return summed.contains(id); });
    };
    const auto reader = std::find_if(graph.nodes.begin() + static_cast<std::ptrdiff_t>(n) + 1,
                                     graph.nodes.end(), reads);
    lanes.lane[n] = Lanes::exchange;
    lanes.waited_at[n] = static_cast<int>(reader - graph.nodes.begin());
  }
  wait_at_calls(lanes, graph);
  return lanes;
}

}  // namespace warpstep

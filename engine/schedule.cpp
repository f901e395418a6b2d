#include "engine/schedule.h"

#include "engine/core/error.h"

namespace warpstep {
namespace {

// Nodes whose result is read after the step, changes a persistent value, or is needed by such a
// node.
std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> value(graph.values.size()), node(graph.nodes.size());
  for (const int id : {graph.loss, graph.correct, graph.logits})
    if (id >= 0) value[idx(id)] = true;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& candidate = graph.nodes[n];
    node[n] = candidate.out.empty();  // updates and the clock work in place
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

Graph schedule(Graph graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<Node> kept;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (needed[n]) kept.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(kept);
  check_order(graph);
  return graph;
}

}  // namespace warpstep

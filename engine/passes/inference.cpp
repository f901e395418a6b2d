#include "engine/passes/inference.h"

#include <numeric>

#include "engine/core/error.h"

namespace warpstep {
namespace {

// The op that a user's op has for inference.
void take_inference_form(Custom& custom, const Graph& graph, const Node& node) {
  std::shared_ptr<const CustomOp> op = custom.op->for_inference();
  if (!op) return;
  if (op->infer(graph.types(node.in)) != graph.types(node.out))
    fail<ShapeError>("{}: its for_inference() has other outputs", node.title());
  custom.op = std::move(op);
}

}  // namespace

Graph for_inference(Graph graph) {
  std::vector<int> stands_for(graph.values.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  for (Node& node : graph.nodes) {
    for (int& id : node.in) id = stands_for[idx(id)];
    if (auto* norm = std::get_if<BatchNorm>(&node.op)) {
      norm->training = false;
      node.out.resize(1);
    }
    if (auto* attention = std::get_if<Attention>(&node.op)) {
      attention->dropout = 0;
      node.in.resize(1);
    }
    if (auto* custom = std::get_if<Custom>(&node.op)) take_inference_form(*custom, graph, node);
    if (std::holds_alternative<Dropout>(node.op)) stands_for[idx(node.out[0])] = node.in[0];
  }
  std::erase_if(graph.nodes, [](const Node& n) { return std::holds_alternative<Dropout>(n.op); });
  for (int* id : {&graph.logits, &graph.loss, &graph.correct})
    if (*id >= 0) *id = stands_for[idx(*id)];
  graph.state = -1;  // nothing draws or updates
  return graph;
}

}  // namespace warpstep

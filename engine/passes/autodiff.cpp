#include "engine/passes/autodiff.h"

#include <algorithm>

#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/graph/adjoint.h"

namespace warpstep {
namespace {

// Values that depend on a parameter: only these need a gradient.
std::vector<bool> wanted_gradients(const Graph& graph) {
  std::vector<bool> wanted(graph.values.size());
  for (std::size_t id = 0; id < graph.values.size(); ++id)
    wanted[id] = graph.values[id].role == Role::parameter;
  for (const Node& node : graph.nodes) {
    bool depends = false;
    for (const int id : node.in) depends = depends || wanted[idx(id)];
    for (const int id : node.out) wanted[idx(id)] = depends && is_float(graph.value(id).type.dtype);
  }
  return wanted;
}

// Nodes that the loss depends on: the others (top-1) have no adjoint to give.
std::vector<bool> reaches_loss(const Graph& graph) {
  std::vector<bool> value(graph.values.size()), node(graph.nodes.size());
  value[idx(graph.loss)] = true;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    for (const int id : graph.nodes[n].out) node[n] = node[n] || value[idx(id)];
    if (node[n])
      for (const int id : graph.nodes[n].in) value[idx(id)] = true;
  }
  return node;
}

// Cross-entropy gives the gradient of the mean loss itself, whatever arrives: it can be nothing but
// the graph's loss. Any other loss begins with a gradient of 1, or the loss scale.
bool gives_own_gradient(const Graph& graph, const Node& node) {
  if (kind(node.op) != OpKind::loss) return false;
  if (node.out[0] != graph.loss)
    fail<Error>("{}: cross-entropy must be the loss itself, not a part of another one",
                node.title());
  return true;
}

}  // namespace

Graph differentiate(Graph graph) {
  if (graph.loss < 0)
    fail<Error>(
        "this graph has no loss to differentiate; end the model with cross_entropy() or "
        "set_loss()");
  const std::vector<bool> wanted = wanted_gradients(graph);
  const std::vector<bool> reaches = reaches_loss(graph);
  std::vector<int> gradients(graph.values.size(), -1);
  const std::size_t forward_nodes = graph.nodes.size();
  for (std::size_t n = forward_nodes; n-- > 0;) {
    const Node node = graph.nodes[n];
    const bool trained =
        std::any_of(node.in.begin(), node.in.end(), [&](int id) { return wanted[idx(id)]; });
    if (!reaches[n] || !trained) continue;
    if (!gives_own_gradient(graph, node) && gradients[idx(graph.loss)] < 0)
      gradients[idx(graph.loss)] =
          graph.record(Phase::data_grad, LossGrad{}, {}, node.scope, node.where)[0].id;
    Adjoint adjoint(graph, node, gradients, wanted);
    naming(node.title(), "grad()", [&] { grad(node.op, adjoint); });
  }
  const std::vector<int> producers = graph.producers();
  for (Parameter& parameter : graph.parameters) {
    parameter.gradient = gradients[idx(parameter.value)];
    if (parameter.gradient < 0)
      fail<Error>("the loss does not depend on parameter {}; remove the layer or use its output",
                  parameter.name);
    Value& gradient = graph.value(parameter.gradient);
    // The store keeps each parameter's gradient apart.
    const int producer = producers[idx(parameter.gradient)];
    if (gradient.role == Role::gradient || is_view(graph.nodes[idx(producer)].op))
      fail<Error>(
          "the gradient of parameter {} is at the same time that of another value ({}): sums and "
          "reshapes of parameters themselves are not trained; compute them in an op of your own "
          "(docs/custom-op.md)",
          parameter.name, gradient.name);
    gradient.role = Role::gradient;
    gradient.name = "d_" + parameter.name;
    gradient.owner = graph.value(parameter.value).owner;
  }
  return graph;
}

}  // namespace warpstep

// A user's own op provides its kernels, which compute in floats: values of bf16 are widened before
// such a kernel and rounded after it.
#include <algorithm>

#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/widened.h"

namespace warpstep::cpu {
namespace {

bool has_bf16(const Operands& operands) {
  const auto any_of = [&](const std::vector<int>& ids) {
    return std::ranges::any_of(
        ids, [&](int id) { return operands.graph.value(id).type.dtype == DType::bf16; });
  };
  return any_of(operands.node.in) || any_of(operands.node.out);
}

// The graph with the node's values of bf16 as f32.
Graph widened_graph(const Operands& operands) {
  Graph graph = operands.graph;
  for (const auto* ids : {&operands.node.in, &operands.node.out})
    for (const int id : *ids)
      if (Value& value = graph.value(id); value.type.dtype == DType::bf16) {
        value.type.dtype = DType::f32;
        value.layout.bytes = value.type.bytes();
      }
  return graph;
}

std::unique_ptr<Kernel> users_kernel(const Custom& op, const Graph& graph, const Node& node) {
  std::unique_ptr<Kernel> kernel = op.op->bind("cpu", graph, node);
  if (!kernel)
    fail<DeviceError>("cpu: {} has no kernel for this backend: its bind() returns none",
                      node.title());
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  if (!has_bf16(operands)) return users_kernel(op, operands.graph, operands.node);
  return widened(operands, users_kernel(op, widened_graph(operands), operands.node));
}

}  // namespace warpstep::cpu

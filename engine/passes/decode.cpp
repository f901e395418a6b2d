#include "engine/passes/decode.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/passes/schedule.h"

namespace warpstep {
namespace {

void drop_unread_inputs(Graph& graph) {
  std::erase_if(graph.inputs, [&](int id) {
    return std::none_of(graph.nodes.begin(), graph.nodes.end(), [id](const Node& node) {
      return std::find(node.in.begin(), node.in.end(), id) != node.in.end();
    });
  });
}

EmbedAt continued(Graph& graph, const Embed& op, Node& node, Tensor position,
                  std::int64_t context) {
  const std::int64_t positions = graph.value(node.in[3]).type.shape[0];
  if (context > positions)
    fail<ShapeError>("{}: a context of {} tokens is longer than the model's {} positions",
                     node.title(), context, positions);
  node.in = {node.in[0], position.id, node.in[2], node.in[3]};
  return {op.sequence};
}

CachedAttention continued(Graph& graph, const Attention& op, Node& node, Tensor position,
                          std::int64_t context) {
  if (!op.causal)
    fail<ShapeError>("{}: positions see later ones, so it cannot continue a sequence",
                     node.title());
  const Shape qkv = graph.value(node.in[0]).type.shape;
  const Tensor cache = graph.buffer(node.scope + ".cache",
                                    {qkv[0] / op.sequence, context, qkv[1] / 3 * 2}, {0}, false);
  node.in = {node.in[0], cache.id, position.id};
  node.out.resize(1);
  return {.heads = op.heads, .sequence = op.sequence};
}

}  // namespace

Graph without_loss(Graph graph) {
  if (graph.logits < 0) fail<ShapeError>("this graph has no logits, so it cannot be sampled");
  graph.loss = graph.correct = -1;
  std::erase_if(graph.nodes, [](const Node& node) { return node.phase == Phase::loss; });
  graph = schedule(std::move(graph));  // a model's own loss is in the forward half
  drop_unread_inputs(graph);
  return graph;
}

Graph for_decoding(Graph graph, std::int64_t context) {
  graph = without_loss(std::move(graph));
  if (graph.inputs.empty()) fail<ShapeError>("a graph without inputs cannot continue a sequence");
  const Tensor position =
      graph.input("position", {DType::i32, {1}}, graph.value(graph.inputs[0]).role);
  bool embeds = false;
  for (Node& node : graph.nodes) {
    const AnyOp op = node.op;
    if (const auto* embed = std::get_if<Embed>(&op)) {
      node.op = continued(graph, *embed, node, position, context);
      embeds = true;
    } else if (const auto* attention = std::get_if<Attention>(&op)) {
      node.op = continued(graph, *attention, node, position, context);
    } else {
      continue;
    }
    infer(node.op, graph.types(node.in));  // refuses more tokens than the context has
  }
  if (!embeds) fail<ShapeError>("a model that embeds no tokens cannot continue a sequence of them");
  drop_unread_inputs(graph);
  return graph;
}

}  // namespace warpstep

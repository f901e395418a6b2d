#include "engine/fuse_norm.h"

#include "engine/rewriter.h"

namespace warpstep {
namespace {

// The norm takes the place of the relu, behind everything that it reads then.
void move_norm(Rewriter& rewriter, Node& norm, Node& relu) {
  norm.out[0] = relu.out[0];
  rewriter.drop(norm);
  relu = norm;
}

}  // namespace

void fuse_norm_relu(Graph& graph) {
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    if (!std::holds_alternative<Relu>(relu.op)) continue;
    Node* norm = rewriter.sole_producer<BatchNorm>(relu.in[0]);
    if (!norm) continue;
    std::get<BatchNorm>(norm->op).relu = true;
    move_norm(rewriter, *norm, relu);
  }
}

void fuse_norm_add_relu(Graph& graph) {
  Rewriter rewriter(graph);
  for (Node& relu : graph.nodes) {
    if (!std::holds_alternative<Relu>(relu.op)) continue;
    Node* add = rewriter.sole_producer<Add>(relu.in[0]);
    if (!add) continue;
    for (const int branch : {0, 1}) {
      Node* norm = rewriter.sole_producer<BatchNorm>(add->in[idx(branch)]);
      if (!norm || std::get<BatchNorm>(norm->op).relu || std::get<BatchNorm>(norm->op).add)
        continue;
      std::get<BatchNorm>(norm->op).add = std::get<BatchNorm>(norm->op).relu = true;
      norm->in.push_back(add->in[idx(1 - branch)]);
      rewriter.drop(*add);
      move_norm(rewriter, *norm, relu);
      break;
    }
  }
}

void fuse_add_norm_grad(Graph& graph) {
  Rewriter rewriter(graph);
  for (Node& node : graph.nodes) {
    auto* grad = std::get_if<BatchNormGrad>(&node.op);
    Node* add = grad ? rewriter.sole_producer<Add>(node.in[0]) : nullptr;
    if (!add || grad->sum || (grad->norm.add && !grad->norm.relu)) continue;
    grad->sum = true;
    node.in[0] = add->in[0];
    node.in.push_back(add->in[1]);
    rewriter.drop(*add);
  }
}

}  // namespace warpstep

// The interface between an op's grad() and the graph: a node's values, and where its gradients go.
#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace warpstep {

// What an op's grad() sees of its node: inputs, outputs, the gradient that arrives, and where to
// leave its own.
class Adjoint {
 public:
  Adjoint(Graph& graph, const Node& node, std::vector<int>& gradients,
          const std::vector<bool>& wanted)
      : graph_(graph), node_(node), gradients_(gradients), wanted_(wanted) {}

  // All of these throw Error for an input or output that the node does not have.
  Tensor in(int i) const;
  Tensor out(int i = 0) const;
  Tensor d_out(int i = 0) const;  // throws Error when no gradient arrives
  bool has_d_out(int i) const { return gradients_[idx(out(i).id)] >= 0; }
  bool wants(int i) const { return wanted_[idx(in(i).id)]; }
  // Leaves a gradient of input i; a second one is added to the first.
  void give(int i, Tensor gradient);
  // Whether an op after this one, which comes earlier in the backward half, has left a gradient of
  // input i that is no other value's as well.
  bool has_own_gradient(int i) const;
  // Takes that gradient of input i back, a parameter: the caller gives one that includes it and is
  // written over it, in the parameter's place in the store.
  Tensor take_gradient(int i);
  std::vector<Tensor> record(Phase phase, AnyOp op, const std::vector<Tensor>& in) {
    return graph_.record(phase, std::move(op), in, node_.scope, node_.where);
  }

 private:
  Graph& graph_;
  const Node& node_;
  std::vector<int>& gradients_;
  const std::vector<bool>& wanted_;
};

}  // namespace warpstep

// The backward half of a step: each node's adjoint, in reverse order.
#pragma once

#include <vector>

#include "engine/graph.h"

namespace warpstep {

// What an op's grad() sees of its node: inputs, outputs, the gradient that arrives, and where to
// leave its own.
class Adjoint {
 public:
  Adjoint(Graph& graph, const Node& node, std::vector<int>& gradients,
          const std::vector<bool>& wanted)
      : graph_(graph), node_(node), gradients_(gradients), wanted_(wanted) {}

  Tensor in(int i) const { return {&graph_, node_.in[idx(i)]}; }
  Tensor out(int i = 0) const { return {&graph_, node_.out[idx(i)]}; }
  Tensor d_out(int i = 0) const;  // throws Error when no gradient arrives
  bool wants(int i) const { return wanted_[idx(in(i).id)]; }
  // Leaves a gradient of input i; a second one is added to the first.
  void give(int i, Tensor gradient);
  std::vector<Tensor> record(Phase phase, AnyOp op, const std::vector<Tensor>& in) {
    return graph_.record(phase, std::move(op), in, node_.scope, node_.where);
  }

 private:
  Graph& graph_;
  const Node& node_;
  std::vector<int>& gradients_;
  const std::vector<bool>& wanted_;
};

// Appends the adjoints of everything between the loss and the parameters. The loss must be the
// output of a loss op. Throws Error when there is no loss, or a parameter that the loss does not
// depend on.
Graph differentiate(Graph graph);

// What there is to an update besides the optimiser's rule.
struct UpdateOptions {
  double clip_norm = 0;         // largest L2 norm of all gradients together; 0: any
  std::int64_t accumulate = 1;  // steps whose gradients make one update
  double average_decay = 0;     // of the average of the weights, below 1; 0: there is none
};

// Appends moments, StepState, the clock (first call of the step) and one Update a parameter; before
// the updates the sum over steps, the norm and LARS, as far as they are asked for.
Graph add_optimizer(Graph graph, const Optimizer& optimizer, const Schedule& schedule,
                    const UpdateOptions& options = {});

// The node that looks at what the updates will read, see CheckGradients.
Node check_gradients(const Graph& graph, double clip_norm);

// Appends the average of the weights over the run; behind the updates.
Graph add_average(Graph graph, double decay);

// Appends the step's report: loss, top-1 count (if the graph has one) and state, to a ring that the
// host reads.
Graph add_report(Graph graph);

}  // namespace warpstep

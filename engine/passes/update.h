// The end of a step: optimiser updates, the average of the weights, and the report to the host.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// The settings of an update besides the optimiser's rule.
struct UpdateOptions {
  double clip_norm = 0;         // largest L2 norm of all gradients together; 0: any
  std::int64_t accumulate = 1;  // steps whose gradients make one update
  Replica replica = {};         // of a data-parallel job: gradients are means over all ranks
  bool sums_in_f32 = false;     // keeps sums of gradients beside them even of a single step
  double average_decay = 0;     // of the average of the weights, below 1; 0: there is none
};

// Appends moments, StepState, the clock (first call of the step) and one Update per parameter;
// before the updates the sum over steps, the norm and LARS, as far as they are asked for.
Graph add_optimizer(Graph graph, const Optimizer& optimizer, const Schedule& schedule,
                    const UpdateOptions& options = {});

// The rule of one parameter of this type: without decay of what does not decay.
Optimizer rule_of(const Optimizer& optimizer, const Type& parameter);

// The node that checks what the updates will read, see CheckGradients.
Node check_gradients(const Graph& graph, double clip_norm);

// Appends the average of the weights over the run, after the updates.
Graph add_average(Graph graph, double decay);

// Appends the step's report: loss, top-1 count (if the graph has one) and state, to a ring that the
// host reads.
Graph add_report(Graph graph);

}  // namespace warpstep

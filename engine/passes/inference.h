// From the graph of a model in training to that of the model in use.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// Batch norms take their running statistics, dropouts go away, ops of users are replaced by their
// for_inference(). For a graph without a backward half.
Graph for_inference(Graph graph);

}  // namespace warpstep

// The order of the step's calls.
#pragma once

#include "engine/graph.h"

namespace warpstep {

// Drops nodes that nothing needs and orders the others: as recorded, which frees a layer's
// activations as soon as its weight gradient is done. Throws Error if a node comes before a value
// it needs.
Graph schedule(Graph graph);

}  // namespace warpstep

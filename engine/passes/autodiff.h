// The backward half of a step: the adjoint of each node, in reverse order.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// Appends the adjoints of everything between the loss and the parameters. The loss must be the
// output of a loss op. Throws Error when there is no loss, or a parameter that the loss does not
// depend on.
Graph differentiate(Graph graph);

}  // namespace warpstep

// The backward half of a step: the adjoint of each node, in reverse order.
#pragma once

#include "engine/graph/graph.h"

namespace warpstep {

// Appends the adjoints of everything between the loss and the parameters. Cross-entropy must be the
// loss itself; any other f32 [] may be, see set_loss(). Throws Error when there is no loss, or a
// parameter that the loss does not depend on.
Graph differentiate(Graph graph);

}  // namespace warpstep

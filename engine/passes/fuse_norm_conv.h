// The rows of the fusion table where convolutions and batch norms meet
// (engine/graph/ops/norm_conv.h).
#pragma once

#include <functional>

#include "engine/passes/fuse.h"

namespace warpstep {

// Whether the op can be computed on inputs of these types: asked for each place that a row fits.
using Computes = std::function<bool(const AnyOp&, const Types& in)>;

// Works on the whole step's graph behind apply_precision(), as what libraries fuse depends on the
// dtypes. What `computes` refuses stays what it was.
Graph fuse_norm_conv(Graph graph, const FuseOptions& options, const Computes& computes);

}  // namespace warpstep

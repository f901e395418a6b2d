// Memory for time: activations that the forward half makes once more for the backward half.
#pragma once

#include <span>
#include <string>

#include "engine/graph/graph.h"

namespace warpstep {

// For each scope ("layer1" is that layer and all layers "layer1.*"): what its forward nodes make
// and only its own backward nodes read is dropped when the forward half has used it, and made again
// by clones of the nodes right before the first of those readers. What the scope reads of others,
// what others read of it and the statistics of batch norms stay. Numbers do not change: running
// statistics do not move twice, dropouts draw the same masks.
//
// After fuse(FuseStage::backward), before add_optimizer(). Throws UsageError for a scope that no
// layer is in, naming the nearest, and for one inside of another.
Graph recompute(Graph graph, std::span<const std::string> scopes);

}  // namespace warpstep

// The rows of the fusion table that are about batch norms.
#pragma once

#include "engine/graph.h"

namespace warpstep {

void fuse_norm_relu(Graph& graph);      // relu(norm(x))
void fuse_norm_add_relu(Graph& graph);  // relu(norm(x) + shortcut)
void fuse_add_norm_grad(Graph& graph);  // norm's adjoint of a sum of two gradients

}  // namespace warpstep

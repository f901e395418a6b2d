// The rows of the fusion table where convolutions and batch norms meet
// (engine/graph/ops/norm_conv.h), of FuseStage::lowered: one rewrite each. Without
// FuseOptions::computes they leave the graph as it is.
#pragma once

#include "engine/passes/fuse.h"

namespace warpstep {

void fuse_conv_statistics(Graph& graph, const FuseOptions& options);
void fuse_norm_gradients(Graph& graph, const FuseOptions& options);
void fuse_shortcut_norm_gradients(Graph& graph, const FuseOptions& options);
void fuse_norm_prologues(Graph& graph, const FuseOptions& options);
void fuse_joins(Graph& graph, const FuseOptions& options);

}  // namespace warpstep

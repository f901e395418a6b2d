// Rewrites of neighbouring ops into one. The whole table is in fuse.cpp; each row has a test that
// the step computes the same with and without it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/graph/graph.h"

namespace warpstep {

struct FuseOptions {
  bool training = true;
  std::set<std::string, std::less<>> disabled;  // names of rows
};

struct FusionRow {
  std::string_view name;
  std::string_view effect;
};
std::span<const FusionRow> fusion_table();

// Rows that work on the forward graph, before it is differentiated. Throws UsageError for an
// unknown disabled row.
Graph fuse(Graph graph, const FuseOptions& options);

// Rows that work on the backward half, after differentiate(). The ids of gradients stay what they
// are, whichever node makes them.
Graph fuse_gradients(Graph graph, const FuseOptions& options);

// The row `updates`, after add_optimizer().
Graph fuse_updates(Graph graph, const FuseOptions& options);

// The rows of the fusion table that are about batch norms.

void fuse_norm_relu(Graph& graph);      // relu(norm(x))
void fuse_norm_add_relu(Graph& graph);  // relu(norm(x) + shortcut)
void fuse_add_norm_grad(Graph& graph);  // norm's adjoint of a sum of two gradients

}  // namespace warpstep

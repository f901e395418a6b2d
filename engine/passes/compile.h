// From a model's graph to the graph of a whole step: the passes that need no device.
#pragma once

#include "engine/passes/fuse.h"
#include "engine/passes/precision.h"
#include "engine/passes/reduce.h"
#include "engine/passes/update.h"

namespace warpstep {

struct StepOptions {
  bool training = true;
  Optimizer optimizer;
  Schedule schedule;
  UpdateOptions update;
  Exchange exchange = {};        // how gradients are summed over the ranks of update.replica
  bool sync_norms = false;       // batch norms have the statistics of all ranks' rows
  bool shard_optimizer = false;  // each rank keeps the moments of its share, see passes/reduce.h
  Precision precision = Precision::fp32;
  std::set<std::string, std::less<>> no_fuse;
  std::vector<std::string> recompute = {};  // scopes, see engine/passes/recompute.h
  bool statistics = false;                  // of blocks, see engine/passes/statistics.h
  // Which ops of engine/graph/ops/norm_conv.h may be made; without it none.
  Computes computes = {};
};

// fuse -> differentiate -> fuse gradients -> recompute -> optimiser -> fuse updates -> average ->
// report -> precision -> fuse norms and convolutions -> sums over ranks -> statistics -> schedule.
// Without training only the forward half. Throws UsageError for training without parameters.
Graph compile_step(Graph graph, const StepOptions& options);

}  // namespace warpstep

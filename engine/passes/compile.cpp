#include "engine/passes/compile.h"

#include "engine/core/error.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/inference.h"
#include "engine/passes/recompute.h"
#include "engine/passes/schedule.h"
#include "engine/passes/statistics.h"

namespace warpstep {

Graph compile_step(Graph graph, const StepOptions& options) {
  if (options.training && graph.parameters.empty())
    fail<UsageError>("the model has no parameters, so there is nothing to train");
  const std::vector<Block> blocks = find_blocks(graph);
  const FuseOptions fusion{options.training, options.no_fuse, options.computes};
  if (!options.training) graph = for_inference(std::move(graph));
  if (options.training && options.sync_norms)
    graph = synchronize_norms(std::move(graph), options.update.replica);
  graph = fuse(std::move(graph), FuseStage::forward, fusion);
  if (options.training) {
    graph = differentiate(std::move(graph));
    graph = fuse(std::move(graph), FuseStage::backward, fusion);
    graph = recompute(std::move(graph), options.recompute);
    UpdateOptions update = options.update;
    update.sums_in_f32 =
        update.replica.ranks > 1 && options.exchange.in_f32 && options.precision != Precision::fp32;
    graph = add_optimizer(std::move(graph), options.optimizer, options.schedule, update);
    graph = fuse(std::move(graph), FuseStage::updates, fusion);
    if (options.update.average_decay > 0)
      graph = add_average(std::move(graph), options.update.average_decay);
    graph = add_report(std::move(graph));
  }
  graph = apply_precision(std::move(graph), options.precision);
  if (options.training) {
    graph = fuse(std::move(graph), FuseStage::lowered, fusion);
    graph = reduce_gradients(std::move(graph), options.update.replica, options.exchange,
                             options.shard_optimizer);
  }
  if (options.training && options.statistics)
    graph = add_statistics(std::move(graph), blocks, options.optimizer);
  return schedule(std::move(graph));
}

}  // namespace warpstep

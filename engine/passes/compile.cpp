#include "engine/passes/compile.h"

#include "engine/passes/autodiff.h"
#include "engine/passes/inference.h"
#include "engine/passes/recompute.h"
#include "engine/passes/schedule.h"

namespace warpstep {

Graph compile_step(Graph graph, const StepOptions& options) {
  const FuseOptions fusion{options.training, options.no_fuse};
  if (!options.training) graph = for_inference(std::move(graph));
  graph = fuse(std::move(graph), fusion);
  if (options.training) {
    graph = differentiate(std::move(graph));
    graph = fuse_gradients(std::move(graph), fusion);
    graph = recompute(std::move(graph), options.recompute);
    graph = add_optimizer(std::move(graph), options.optimizer, options.schedule, options.update);
    graph = fuse_updates(std::move(graph), fusion);
    if (options.update.average_decay > 0)
      graph = add_average(std::move(graph), options.update.average_decay);
    graph = add_report(std::move(graph));
  }
  graph = apply_precision(std::move(graph), options.precision);
  if (options.training && options.computes)
    graph = fuse_norm_conv(std::move(graph), fusion, options.computes);
  return schedule(std::move(graph));
}

}  // namespace warpstep

#include "tools/warpstep/session.h"

#include "engine/core/error.h"
#include "tools/warpstep/update_options.h"

namespace warpstep::tools {
namespace {

StepOptions step_options(const RunOptions& options, const Backend& backend, bool training) {
  StepOptions step{.training = training,
                   .optimizer = {},
                   .schedule = {},
                   .update = {},
                   .precision = parse_precision(options.precision),
                   .no_fuse = {}};
  step.no_fuse.insert(options.no_fuse.begin(), options.no_fuse.end());
  return options_for(backend, step);
}

}  // namespace

Device open_device(const RunOptions& options) {
  const BackendOptions backend = backend_options(options);
  if (options.device != "auto") return {open_backend(options.device, backend), ""};
  try {
    return {open_backend("cuda", backend), ""};
  } catch (const DeviceError& error) {
    return {open_backend("cpu", backend), error.what()};
  }
}

std::unique_ptr<Program> training_program(const RunOptions& options, const Source& source,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule) {
  StepOptions step = step_options(options, *backend, true);
  step.optimizer = optimizer_of(options);
  step.schedule = schedule;
  step.update = update_options(options);
  Graph graph =
      models::build(models::find(options.model), build_options(options, source, *backend));
  auto program =
      std::make_unique<Program>(compile_step(std::move(graph), step), std::move(backend));
  program->store().initialize(options.seed);
  return program;
}

std::unique_ptr<Program> evaluation_program(const RunOptions& options, const Source& source,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store) {
  Graph graph =
      models::build(models::find(options.model), build_options(options, source, *backend));
  const StepOptions step = step_options(options, *backend, false);
  return std::make_unique<Program>(compile_step(std::move(graph), step), std::move(backend),
                                   std::move(store));
}

}  // namespace warpstep::tools

#include "tools/warpstep/session.h"

#include "data/statistics.h"
#include "engine/core/error.h"

namespace warpstep::tools {
namespace {

StepOptions step_options(const RunOptions& options, const Backend& backend, bool training) {
  StepOptions step{.training = training,
                   .optimizer = {},
                   .schedule = {},
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

namespace {

// Slots that the device reads in place, without a copy on the way.
class BackendSlots final : public data::SlotMemory {
 public:
  explicit BackendSlots(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::byte* allocate(std::size_t bytes) override {
    memory_ = backend_->allocate_host(bytes);
    return memory_.get();
  }
  void release(std::byte*, std::size_t) noexcept override { memory_.reset(); }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace

Source open_source(const RunOptions& options, data::Split split,
                   const std::shared_ptr<Backend>& backend) {
  Source source{data::open(options.data, split), nullptr, nullptr};
  const bool device = backend->steps_in_flight() > 0;
  if (device) source.slots = std::make_unique<BackendSlots>(backend);
  const bool training = split == data::Split::train;
  // On the CPU loader threads take cores from the kernels: one keeps ahead of every model here.
  const int workers = options.workers == 0 && !device ? 1 : options.workers;
  source.loader = std::make_unique<data::Loader>(
      source.dataset, data::LoaderOptions{.batch = options.batch,
                                          .workers = workers,
                                          .prefetch = options.prefetch,
                                          .hold = backend->steps_in_flight() + 1,
                                          .seed = options.seed,
                                          .shuffle = training,
                                          .tail = training ? data::Tail::drop : data::Tail::pad,
                                          .start = {},
                                          .memory = source.slots.get()});
  return source;
}

void resolve_normalization(RunOptions& options, const data::Dataset& training) {
  if (options.mean.empty() != options.std.empty())
    fail<UsageError>("--mean and --std are given together or not at all");
  const auto channels = idx(training.image_shape()[2]);
  if (options.mean.empty()) {
    const data::ChannelStatistics measured = data::channel_statistics(training);
    options.mean = measured.mean;
    options.std = measured.std;
    for (double& std : options.std)
      if (std == 0) std = 1;  // a constant channel
  }
  if (options.mean.size() != channels || options.std.size() != channels)
    fail<UsageError>("the images have {} channels, but --mean has {} and --std {} values", channels,
                     options.mean.size(), options.std.size());
}

models::BuildOptions build_options(const RunOptions& options, const data::Dataset& dataset) {
  return {.batch = options.batch,
          .image = dataset.image_shape(),
          .classes = static_cast<std::int64_t>(dataset.classes().size()),
          .mean = {options.mean.begin(), options.mean.end()},
          .std = {options.std.begin(), options.std.end()}};
}

std::unique_ptr<Program> training_program(const RunOptions& options, const data::Dataset& dataset,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule) {
  StepOptions step = step_options(options, *backend, true);
  step.optimizer = optimizer_of(options);
  step.schedule = schedule;
  Graph graph = models::build(models::find(options.model), build_options(options, dataset));
  auto program =
      std::make_unique<Program>(compile_step(std::move(graph), step), std::move(backend));
  program->store().initialize(options.seed);
  return program;
}

std::unique_ptr<Program> evaluation_program(const RunOptions& options, const data::Dataset& dataset,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store) {
  Graph graph = models::build(models::find(options.model), build_options(options, dataset));
  const StepOptions step = step_options(options, *backend, false);
  return std::make_unique<Program>(compile_step(std::move(graph), step), std::move(backend),
                                   std::move(store));
}

}  // namespace warpstep::tools

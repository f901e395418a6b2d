// A training step that another program times against its own: the child of
// bench/peers/alternate.py, whose README describes the line protocol, the optimisers too. Weights
// and batches are those of the goldens.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>

#include "bench/open.h"
#include "bench/program.h"
#include "engine/core/error.h"
#include "engine/passes/compile.h"
#include "engine/run/trainer.h"
#include "models/build.h"
#include "tests/golden_batch.h"

namespace {

using namespace warpstep;

struct Options {
  std::string model = "cifar10cnn", device = "cpu", precision = "fp32", moments = "fp32";
  std::int64_t batch = 128;
  std::int64_t image = 0;                  // height and width; 0: the model's own
  std::int64_t sequence = 0;               // of text, in tokens; 0: the model's context
  std::vector<std::string> model_options;  // "layers=6"
  std::vector<std::string> no_fuse;        // "norm+conv"
  bool no_graph = false;
  std::uint64_t steps_per_launch = 1;
  bool overlap_launches = false;
  bool host_batches = false;  // each step copies its batch; else all are in device memory
  BackendOptions backend;
};

std::vector<float> mean_of(const Shape& image) {
  return image[2] == 1 ? std::vector<float>{0.5F} : std::vector<float>{0.5F, 0.4375F, 0.5625F};
}
std::vector<float> std_of(const Shape& image) {
  return image[2] == 1 ? std::vector<float>{0.25F} : std::vector<float>{0.25F, 0.3125F, 0.375F};
}

models::BuildOptions build_options(const Options& options, const models::Model& model) {
  models::BuildOptions build{.batch = options.batch,
                             .settings = models::resolve_settings(model, options.model_options)};
  if (model.is_text()) {
    if (options.image > 0) fail<UsageError>("--image: {} reads text", model.name);
    build.sequence = options.sequence > 0 ? options.sequence : build.settings.whole("context");
    const std::int64_t vocabulary = build.settings.whole("vocabulary");
    build.vocabulary = vocabulary > 0 ? vocabulary : models::gpt2_vocabulary;
    return build;
  }
  if (options.sequence > 0) fail<UsageError>("--sequence: {} reads images", model.name);
  build.image = model.image;
  if (options.image > 0) build.image = {options.image, options.image, model.image[2]};
  build.mean = mean_of(build.image);
  build.std = std_of(build.image);
  return build;
}

StepOptions step_options(const models::Model& model, Precision precision, DType moments) {
  StepOptions options{.schedule = {.peak = 1e-4}, .precision = precision};
  if (model.is_text()) {
    options.optimizer = {.kind = Optimizer::Kind::adamw,
                         .weight_decay = 0.1,
                         .beta2 = 0.95,
                         .decays_vectors = false};
    options.update.clip_norm = 1;
  }
  options.optimizer.moment_dtype = moments;
  return options;
}

GoldenBatch batch_of(const models::BuildOptions& build, std::uint64_t seed, std::uint32_t step) {
  return build.sequence > 0 ? golden_text(seed, step, build.batch, build.sequence, build.vocabulary)
                            : golden_batch(seed, step, build.batch, build.image);
}

// A batch where the step reads it: in the device's memory, copied there once as PyTorch's batches
// are, or in pinned memory of the host, from which each step copies it.
class StepBatch {
 public:
  StepBatch(const Backend& backend, Stream& stream, const GoldenBatch& batch, bool on_device) {
    for (const std::span<const std::byte> bytes : batch.inputs()) {
      std::shared_ptr<std::byte> memory = backend.allocate_host(bytes.size());
      std::ranges::copy(bytes, memory.get());
      if (on_device) {
        const std::shared_ptr<std::byte> pinned = std::move(memory);
        memory = backend.allocate(bytes.size());
        backend.upload(stream, memory.get(), pinned.get(), bytes.size());
        stream.wait();
      }
      slots_.push_back(memory.get());
      memory_.push_back(std::move(memory));
    }
  }

  std::span<const void* const> slots() const { return slots_; }

 private:
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<const void*> slots_;
};

// The losses of steps that may still be running: the device writes them to the ring of reports, and
// they are read before their place is reused.
class Losses {
 public:
  explicit Losses(const Program& program)
      : program_(program), first_step_(program.store().step_state().step) {}

  // Notes a launch that was enqueued.
  void launched(std::size_t steps) {
    constexpr std::size_t marks_kept = 8;  // by a stream
    launches_.push_back({program_.stream().mark(), steps});
    unread_ += steps;
    // The next launch may overwrite the reports of the steps `report_ring` before its own.
    while (launches_.size() == marks_kept || unread_ + most_per_launch > report_ring) take_oldest();
  }
  std::vector<float> take_all() {
    while (!launches_.empty()) take_oldest();
    return std::exchange(losses_, {});
  }

 private:
  struct Launch {
    std::uint64_t mark = 0;
    std::size_t steps = 0;
  };

  void take_oldest() {
    const Launch launch = launches_.front();
    launches_.pop_front();
    program_.stream().wait_for(launch.mark);
    for (std::size_t i = 0; i < launch.steps; ++i)
      losses_.push_back(program_.store().report(first_step_ + ++taken_).loss);
    unread_ -= launch.steps;
  }

  const Program& program_;
  std::int64_t first_step_, taken_ = 0;
  std::deque<Launch> launches_;  // whose losses have not been read yet
  std::size_t unread_ = 0;
  std::vector<float> losses_;
};

Program make_program(const Options& options, const models::Model& model,
                     models::BuildOptions& build) {
  const Precision precision = parse_precision(options.precision);
  if (options.overlap_launches) ::setenv("WARPSTEP_OVERLAP_LAUNCHES", "1", 1);
  BackendOptions backend = options.backend;
  backend.tf32 = precision == Precision::tf32;
  const std::shared_ptr<Backend> opened = bench::open(options.device, backend);
  build.uploaded = !options.host_batches && opened->steps_in_flight() > 0;
  StepOptions step =
      step_options(model, precision, options.moments == "bf16" ? DType::bf16 : DType::f32);
  step.no_fuse.insert(options.no_fuse.begin(), options.no_fuse.end());
  step = options_for(*opened, std::move(step));
  return Program(compile_step(models::build(model, build), step), opened);
}

void serve(const Options& options) {
  constexpr std::uint64_t seed = 1;
  constexpr std::uint32_t batches = 8;
  const models::Model& model = models::find(options.model);
  models::BuildOptions build = build_options(options, model);
  Program program = make_program(options, model, build);
  program.store().initialize(seed);
  std::vector<StepBatch> data;
  for (std::uint32_t s = 0; s < batches; ++s)
    data.emplace_back(program.backend(), program.stream(), batch_of(build, seed, s),
                      build.uploaded);
  const auto runner = options.no_graph ? eager_runner(program) : graph_runner(program);
  Losses reported(program);
  const bool queues = program.backend().steps_in_flight() > 0;
  const std::uint64_t per_launch = queues ? options.steps_per_launch : 1;
  std::uint64_t step = 0;
  while (const std::optional<std::uint64_t> steps = bench::next_window()) {
    std::vector<float> losses;
    const auto begin = std::chrono::steady_clock::now();
    for (const std::uint64_t end = step + *steps; step < end;) {
      // Others than whole ones would be captured in windows that are timed.
      const bool is_whole = step % per_launch == 0 && end - step >= per_launch;
      std::vector<StepVariant> launch(is_whole ? per_launch : 1);
      for (StepVariant& variant : launch) {
        const std::span<const void* const> slots = data[step++ % batches].slots();
        variant.slots.assign(slots.begin(), slots.end());
      }
      runner->steps(launch);
      if (queues)
        reported.launched(launch.size());
      else
        losses.push_back(program.loss());
    }
    if (queues) losses = reported.take_all();
    program.wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("{{\"seconds\": {}, \"losses\": [{}], \"device\": \"{}\"}}\n", seconds.count(),
               fmt::join(losses, ", "), program.backend().describe());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A training step that speaks the line protocol of bench/peers", "step_peer");
  Options options;
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--device", options.device)->capture_default_str();
  app.add_option("--precision", options.precision, "fp32, tf32, bf16 or fp16")
      ->capture_default_str();
  app.add_option("--moments", options.moments, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--image", options.image, "height and width; 0: the model's own")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--sequence", options.sequence, "tokens; 0: the model's context")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--model-option", options.model_options, "as of warpstep train");
  app.add_option("--threads", options.backend.threads)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--exact-math", options.backend.exact_math);
  app.add_flag("--autotune", options.backend.autotune,
               "measure algorithms, as cudnn.benchmark does for PyTorch");
  app.add_option("--plan-cache", options.backend.plan_cache, "folder for plans; else none");
  app.add_option("--no-fuse", options.no_fuse, "disable the fusion of this name");
  app.add_flag("--host-batches", options.host_batches,
               "each step copies its batch from the host; else all are in device memory");
  app.add_flag("--no-graph", options.no_graph, "call by call, even if a step could be one launch");
  app.add_option("--steps-per-launch", options.steps_per_launch, "steps in one graph, on a device")
      ->check(CLI::Range(std::uint64_t{1}, most_per_launch));
  app.add_flag(
      "--overlap-launches", options.overlap_launches,
      "as WARPSTEP_OVERLAP_LAUNCHES=1: our kernels are placed before those before them end");
  return bench::run_program(app, argc, argv, [&] {
    serve(options);
    return 0;
  });
}

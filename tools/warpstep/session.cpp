#include "tools/warpstep/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/text.h"
#include "engine/explain/explain.h"
#include "engine/files/weights.h"
#include "engine/run/feeder.h"
#include "engine/run/step_memory.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/fitting.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

void declare_start_weights(const Parser& parser, StartWeights& weights, const char* group) {
  parser.add({.name = "--weights",
              .variable = &weights.file,
              .help = "start from the weights in this safetensors file: a PyTorch state_dict or a "
                      "checkpoint; docs/weights.md",
              .type = "FILE",
              .group = group});
  parser.add({.name = "--allow-missing",
              .variable = &weights.allow_missing,
              .help = "with --weights: load the tensors that fit by name and shape and list the "
                      "others, for example for another number of classes",
              .group = group});
}

void check_start_weights(const StartWeights& weights, bool resumes) {
  if (weights.file.empty()) {
    if (weights.allow_missing) fail<UsageError>("--allow-missing goes with --weights");
    return;
  }
  if (!std::filesystem::exists(weights.file))
    fail<DataError>("--weights {}: there is no such file", weights.file);
  if (std::filesystem::is_directory(weights.file)) {
    const std::vector<std::filesystem::path> saved = checkpoints(weights.file);
    fail<DataError>("--weights {}: is a directory; give {}", weights.file,
                    saved.empty() ? "a safetensors file"
                                  : "a file of it: --weights " + shell_word(saved.back().string()));
  }
  if (resumes)
    fail<UsageError>(
        "--weights does not go with --resume: the run continues with its own weights; start a new "
        "run to use others");
}

Json load_start_weights(const StartWeights& weights, const std::string& model, Store& store) {
  if (weights.file.empty()) return nullptr;
  const LoadReport report =
      load_weights(weights.file, store,
                   {.allow_missing = weights.allow_missing,
                    .fix = "--allow-missing loads what fits and leaves the rest as initialised",
                    .rules = models::weight_rules_of(models::find(model))});
  for (const std::string& line : report.lines()) say("{}\n", line);
  return {{"file", std::filesystem::absolute(weights.file).string()},
          {"loaded", report.loaded},
          {"of", report.wanted}};
}

namespace {

StepOptions step_options(const RunOptions& options, const Backend& backend, bool training) {
  StepOptions step{.training = training,
                   .optimizer = {},
                   .schedule = {},
                   .update = {},
                   .precision = parse_precision(options.precision),
                   .no_fuse = {},
                   .recompute = options.recompute};
  step.no_fuse.insert(options.no_fuse.begin(), options.no_fuse.end());
  return options_for(backend, step);
}

// A plan is code for the device: a cache that other users can write is not used.
void warn_of_unused_cache(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(std::filesystem::symlink_status(folder, ignored)))
    return;
  if (const std::string problem = folder_problem(folder, 022); !problem.empty())
    std::fputs(fmt::format("warpstep: the plan cache is not used: {}\n", problem).c_str(), stderr);
}

// Why this rank can use no GPU; empty if it can. Waits for no other rank.
std::string why_no_gpu(BackendOptions backend) {
  backend.is_trial = true;
  try {
    open_backend("cuda", backend);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

// Ranks open their GPUs together, so that all of a job do or none. `why`: this rank's, of no GPU.
std::string device_of_ranks(const RunOptions& options, const BackendOptions& backend,
                            std::string& why) {
  Communicator& ranks = *options.communicator;
  const std::vector<std::string> devices = ranks.gather(options.device);
  for (std::size_t rank = 1; rank < devices.size(); ++rank)
    if (devices[rank] != devices[0])
      fail<UsageError>(
          "rank {} differs from rank 0 in --device: {} instead of {}; start all ranks with the "
          "same options",
          rank, devices[rank], devices[0]);
  if (options.device != "auto") return options.device;
  why = why_no_gpu(backend);
  const std::vector<std::string> reasons = ranks.gather(why);
  const auto with = std::ranges::find(reasons, ""),
             without = std::ranges::find_if(reasons, [](const auto&text) { return !text.empty(); });
  if (without == reasons.end()) return "cuda";
  if (with == reasons.end()) return "cpu";
  fail<UsageError>(
      "rank {} can use no GPU: {}; rank {} can: give --device cpu, or start no more ranks on a "
      "machine than it has GPUs",
      without - reasons.begin(), *without, with - reasons.begin());
}

}  // namespace

Device open_device(const RunOptions& options) {
  BackendOptions backend = backend_options(options);
  const AvailableCpus available = available_cpus();
  const auto open = [&](const std::string& name) -> Device {
    const bool has_team = name == "cpu";
    Device device{.allowed = available.allowed};
    if (options.pin_cpus != "none")
      device.pinning = choose_pinning(options.pin_cpus, has_team ? options.threads : 1, available,
                                      options.pinned_part);
    if (has_team && device.pinning.threads() > 0) backend.threads = device.pinning.threads();
    device.backend = open_backend(name, backend);
    place_threads(device.pinning.places);
    device.threads = device.backend->threads();
    if (has_team && device.threads < backend.threads)
      std::fputs(fmt::format("warpstep: kernels have {} instead of {} threads: OpenMP's limit, "
                             "OMP_THREAD_LIMIT, is lower\n",
                             device.threads, backend.threads)
                     .c_str(),
                 stderr);
    if (name.starts_with("cuda")) warn_of_unused_cache(backend.plan_cache);
    return device;
  };
  if (options.world().size > 1) {
    std::string why;
    Device device = open(device_of_ranks(options, backend, why));
    device.why = why;
    return device;
  }
  if (options.device != "auto") {
    try {
      return open(options.device);
    } catch (const DeviceError& error) {
      if (!options.device.starts_with("cuda")) throw;
      fail<DeviceError>("--device {}: {}; --device cpu needs no GPU", options.device, error.what());
    }
  }
  try {
    return open("cuda");
  } catch (const DeviceError& error) {
    Device device = open("cpu");
    device.why = error.what();
    return device;
  }
}

void pin_launching_thread(const Device& device) {
  if (device.backend->name() != "cpu") run_on(device.pinning.places.team);
}

namespace {

Graph training_graph(const RunOptions& options, const Source& source, const Backend& backend,
                     const Schedule& schedule) {
  StepOptions step = step_options(options, backend, true);
  step.optimizer = optimizer_of(options);
  step.schedule = schedule;
  step.update = update_options(options);
  step.sync_norms = options.sync_bn;
  step.shard_optimizer = shards_optimizer(options, backend.name(), options.world().size);
  step.statistics = options.stats_every > 0;
  return compile_step(
      models::build(models::find(options.model), build_options(options, source, backend)), step);
}

Graph evaluation_graph(const RunOptions& options, const Source& source, const Backend& backend) {
  models::BuildOptions build = build_options(options, source, backend);
  if (source.is_text()) build.loss = plain_loss(std::move(build.loss));
  return compile_step(models::build(models::find(options.model), build),
                      step_options(options, backend, false));
}

}  // namespace

std::unique_ptr<Program> training_program(const RunOptions& options, const Source& source,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule) {
  Graph graph = training_graph(options, source, *backend, schedule);
  auto program = std::make_unique<Program>(std::move(graph), std::move(backend));
  program->store().initialize(options.seed);
  return program;
}

std::unique_ptr<Program> evaluation_program(const RunOptions& options, const Source& source,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store) {
  Graph graph = evaluation_graph(options, source, *backend);
  return std::make_unique<Program>(std::move(graph), std::move(backend), std::move(store));
}

namespace {

// Bytes of the loaders of a step and of an evaluation: a part that does not depend on the batch,
// and a number of slots of their inputs each.
struct Loading {
  std::uint64_t fixed = 0;
  std::array<std::uint64_t, 2> slots{Feeder::buffers, Feeder::buffers};  // on a device

  Loading(const RunOptions& options, const Backend& backend, std::array<const Source*, 2> sources,
          std::array<std::uint64_t, 2> input_bytes) {
    if (backend.free_bytes() > 0) {
      slots[0] *= options.steps_per_launch;
      return;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const data::MemoryBound& bound = sources[i]->loader->memory();
      const std::uint64_t input = std::max<std::uint64_t>(1, input_bytes[i]);
      fixed += bound.total() - bound.slots;
      slots[i] = (bound.slots + input / 2) / input;  // which are rounded up a little
    }
  }
  std::uint64_t bytes(std::array<std::uint64_t, 2> input_bytes) const {
    return fixed + slots[0] * input_bytes[0] + slots[1] * input_bytes[1];
  }
};

// The average of the weights is copied to a separate store before each evaluation.
bool averages(const RunOptions& options) {
  return options.ema > 0;
}

// Rank 0 gathers the moments that ranks share out when it saves them, in the host's memory.
std::uint64_t gathered_bytes(const Graph& step, const Backend& backend) {
  if (step.shards.ranks == 1 || step.shards.rank > 0 || backend.accelerator()) return 0;
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : step.parameters)
    for (const int moment : parameter.moments) bytes += step.value(moment).layout.bytes;
  return bytes;
}

// Plans the run's two steps for any batch, while the backend only plans.
struct Rebatched {
  const RunOptions& options;
  const Source &training, &test;
  const Backend& backend;
  const Schedule& schedule;

  struct Plans {
    StepMemory step, evaluation;
    std::uint64_t gathered = 0;

    std::array<std::uint64_t, 2> input_bytes() const {
      return {step.input_bytes, evaluation.input_bytes};
    }
    std::uint64_t bytes(const Loading& loading) const {
      return step.persistent_bytes + step.plan.arena_bytes + evaluation.persistent_bytes +
             evaluation.plan.arena_bytes + loading.bytes(input_bytes()) + gathered;
    }
  };
  Plans plans(std::int64_t batch) const {
    RunOptions other = options;
    other.batch = batch;
    Plans made{plan_step(training_graph(other, training, backend, schedule), backend), {}};
    made.gathered = gathered_bytes(made.step.graph, backend);
    const Graph* shared = averages(options) ? nullptr : &made.step.graph;
    made.evaluation = plan_step(evaluation_graph(other, test, backend), backend, shared);
    return made;
  }
};

// Throws unless the run fits by its plans. Nothing runs on a device, and no memory is allocated
// there: there may be none left, and the plans of other batches serve this message alone.
void require_fit(const Rebatched& run, std::uint64_t free) {
  const OnlyPlanning planning(run.backend);
  const Rebatched::Plans asked = run.plans(run.options.batch);
  const Loading loading(run.options, run.backend, {&run.training, &run.test}, asked.input_bytes());
  const std::uint64_t bytes = asked.bytes(loading);
  if (bytes <= free) return;
  const auto bytes_of = [&](std::int64_t batch) {
    try {
      return run.plans(batch).bytes(loading);
    } catch (const ShapeError&) {  // a batch norm of one value per channel
      return UINT64_MAX;
    }
  };
  const std::int64_t fits = largest_batch_that_fits(run.options.batch, bytes_of, free);
  const auto size = [](std::uint64_t count) { return size_text(static_cast<double>(count)); };
  fail<DeviceError>(
      "{} with --batch {} takes {} of memory on {}, {} more than the {} that may be used: {}; {}",
      run.options.model, run.options.batch, size(bytes), run.backend.name(), size(bytes - free),
      size(free), memory_text(asked.step.graph, asked.step.plan),
      fits > 0 ? fmt::format("the largest that fits is --batch {}", fits)
               : std::string("not even --batch 1 fits"));
}

// Whether images of both sizes go through the same weights: a layer of all pixels has others for
// another size.
bool has_weights_of(const Graph& step, const Graph& evaluation) {
  if (step.parameters.size() != evaluation.parameters.size()) return false;
  for (std::size_t p = 0; p < step.parameters.size(); ++p)
    if (step.value(step.parameters[p].value).type.shape !=
        evaluation.value(evaluation.parameters[p].value).type.shape)
      return false;
  return true;
}

void require_one_size(const RunOptions& options, const Source& training, const Source& test,
                      const Backend& backend, const Graph& step) {
  if (training.is_text() || training.row_shape() == test.row_shape()) return;
  if (has_weights_of(step, evaluation_graph(options, test, backend))) return;
  const Shape row = training.row_shape();
  fail<UsageError>(
      "training images are {} for the model and test images {}, but {} has weights for one size "
      "only; bring test images to the same: --eval-transforms resize={}x{}",
      row.text(), test.row_shape().text(), options.model, row[0], row[1]);
}

}  // namespace

Programs fitting_programs(const RunOptions& options, const Source& training, const Source& test,
                          const std::shared_ptr<Backend>& backend, const Schedule& schedule,
                          std::uint64_t free) {
  // A set may have become resident on a device since.
  if (backend->free_bytes() > 0) free = free_bytes(*backend);
  const Rebatched run{options, training, test, *backend, schedule};
  Programs programs;
  try {
    programs.step = training_program(options, training, backend, schedule);
    require_one_size(options, training, test, *backend, programs.step->graph());
    programs.evaluation = evaluation_program(
        options, test, backend, averages(options) ? nullptr : programs.step->shared_store());
  } catch (const OutOfMemory&) {
    programs = {};
    require_fit(run, free);
    throw;
  }
  const Graph &step = programs.step->graph(), &evaluation = programs.evaluation->graph();
  const std::array<std::uint64_t, 2> inputs{slot_bytes(step), slot_bytes(evaluation)};
  const std::uint64_t bytes = persistent_bytes(step) + programs.step->plan().arena_bytes +
                              programs.evaluation->plan().arena_bytes +
                              (averages(options) ? persistent_bytes(evaluation) : 0) +
                              Loading(options, *backend, {&training, &test}, inputs).bytes(inputs) +
                              gathered_bytes(step, *backend);
  if (bytes > free) require_fit(run, free);
  return programs;
}

std::string recompute_line(const std::vector<std::string>& scopes, Graph without,
                           const Program& program) {
  const auto flops = [](const Graph& graph) {
    double sum = 0;
    for (const Node& node : graph.nodes) sum += graph.cost(node).flops;
    return sum;
  };
  constexpr double mib = 1 << 20;
  const double before = flops(without);
  const StepMemory plain = plan_step(std::move(without), program.backend());
  return fmt::format("recompute {}: arena {:.1f} -> {:.1f} MiB, {:.1f} % more FLOPs",
                     fmt::join(scopes, ", "), static_cast<double>(plain.plan.arena_bytes) / mib,
                     static_cast<double>(program.plan().arena_bytes) / mib,
                     before > 0 ? 100 * (flops(program.graph()) / before - 1) : 0);
}

Graph graph_without_recompute(const RunOptions& options, const Source& source,
                              const Backend& backend) {
  RunOptions without = options;
  without.recompute.clear();
  return training_graph(without, source, backend, {});
}

std::string recompute_line(const RunOptions& options, const Source& source,
                           const Program& program) {
  if (options.recompute.empty()) return {};
  return recompute_line(options.recompute,
                        graph_without_recompute(options, source, program.backend()), program);
}

std::string attention_note(const Program& program) {
  std::string why;
  std::int64_t calls = 0, without = 0;
  for (const Call& call : program.calls()) {
    const AnyOp& op = program.graph().nodes[idx(call.node)].op;
    if (!std::holds_alternative<Attention>(op) && !std::holds_alternative<AttentionGrad>(op))
      continue;
    ++calls;
    const std::string reason = call.kernel->without_tensor_cores();
    if (reason.empty()) continue;
    ++without;
    if (why.empty()) why = reason;
  }
  if (without == 0) return {};
  return fmt::format(
      "note: {} of {} calls of attention run on our own kernels, without tensor cores, which made "
      "a step of gpt2 14 times as long on an H200. Why: {}",
      without, calls, why);
}

}  // namespace warpstep::tools

#include "tools/warpstep/run_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/core/error.h"
#include "tools/warpstep/recomputing.h"
#include "tools/warpstep/run_fields.h"
#include "tools/warpstep/update_options.h"

namespace warpstep::tools {
namespace {

// Epochs times steps an epoch is a number of 64 bits.
constexpr std::uint64_t most_epochs = 1'000'000'000;

}  // namespace

// The parser's own checks take "-1" for 2^64 - 1, "nan" for a number, and name a range of 309
// digits.
TextCheck whole_number(std::uint64_t least, std::uint64_t most) {
  return [least, most](const std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    const bool whole = error == std::errc() && at == end;
    if (whole && value >= least && value <= most) return std::string();
    return fmt::format("'{}' is not a whole number from {} {}", text, least,
                       whole && value > most ? fmt::format("to {}", most) : "on");
  };
}

TextCheck finite_number() {
  return [](const std::string& text) {
    char* at = nullptr;
    const double value = std::strtod(text.c_str(), &at);
    if (!text.empty() && *at == 0 && std::isfinite(value)) return std::string();
    return fmt::format("'{}' is not a number", text);
  };
}

TextCheck number_from_zero() {
  return [finite = finite_number()](const std::string& text) {
    if (finite(text).empty() && std::strtod(text.c_str(), nullptr) >= 0) return std::string();
    return fmt::format("'{}' is not a number from 0 on", text);
  };
}

void to_json(nlohmann::ordered_json& json, const RunOptions& options) {
  json = nlohmann::ordered_json::object();
  visit_fields([&](const char* key, auto member) { json[key] = options.*member; });
}

namespace {

std::filesystem::path plan_cache(const std::string& text) {
  if (text == "off") return {};
  if (text != "auto") return text;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return std::filesystem::path(cache) / "warpstep";
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".cache" / "warpstep"
                       : std::filesystem::path();
}

}  // namespace

BackendOptions backend_options(const RunOptions& o) {
  if (o.deterministic && o.autotune && plan_cache(o.plan_cache).empty())
    fail<UsageError>(
        "--deterministic with --autotune: which algorithm is fastest comes out another way each "
        "time, and without a plan cache nothing keeps the choice; name a folder with --plan-cache, "
        "or leave out --autotune");
  return {.threads = o.threads,
          .exact_math = o.exact_math,
          .tf32 = parse_precision(o.precision) == Precision::tf32,
          .deterministic = o.deterministic,
          .autotune = o.autotune,
          .workspace_cap = idx(o.workspace_mib) << 20,
          .plan_cache = plan_cache(o.plan_cache),
          .assumed_device = {}};
}

void declare_model_options(CLI::App& app, RunOptions& o) {
  app.add_option("--device", o.device,
                 "where to compute: auto, cpu, cuda, cuda:N or ref (slow, in double precision)")
      ->capture_default_str();
  app.add_option("--precision", o.precision, "fp32, tf32, bf16 or fp16")->capture_default_str();
  app.add_option("--batch", o.batch, "images a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", o.threads, "CPU threads of the kernels; 0: all there are")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  app.add_flag("--exact-math", o.exact_math,
               "no algorithm that trades accuracy for speed (Winograd)");
  app.add_flag(
      "--deterministic", o.deterministic,
      "only algorithms that give the same bits every time; on the CPU all do, with as many "
      "--threads");
  app.add_flag(
      "--autotune", o.autotune,
      "CUDA: measure the libraries' algorithms, not trust their heuristics; choices are kept");
  app.add_option("--workspace-mib", o.workspace_mib, "CUDA: most that one call may take for itself")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16));
  app.add_option("--plan-cache", o.plan_cache,
                 "CUDA: folder for compiled plans and measured choices; auto: "
                 "$XDG_CACHE_HOME/warpstep or ~/.cache/warpstep; off: none is kept")
      ->capture_default_str();
  app.add_option("--no-fuse", o.no_fuse, "leave out a fusion by name; may be repeated");
}

void declare_training_options(CLI::App& app, RunOptions& o) {
  app.add_option("--epochs", o.epochs, "passes over the training images; 0: until --steps")
      ->capture_default_str()
      ->check(whole_number(0, most_epochs));
  app.add_option("--steps", o.steps, "stop after so many steps; 0: until --epochs")
      ->capture_default_str()
      ->check(whole_number());
  app.add_option("--limit-batches", o.limit_batches,
                 "end each epoch and evaluation after so many batches; 0: all")
      ->capture_default_str()
      ->check(whole_number());
  app.add_option("--optimizer", o.optimizer, "sgd, adam, adamw or lars")
      ->capture_default_str()
      ->check(CLI::IsMember({"sgd", "adam", "adamw", "lars"}));
  app.add_option("--lr", o.lr, "learning rate; the model's own when not given")
      ->check(number_from_zero());
  app.add_option("--momentum", o.momentum, "of sgd and lars")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--nesterov", o.nesterov, "Nesterov's momentum, with sgd and lars");
  app.add_option("--weight-decay", o.weight_decay, "added to the gradient; decoupled with adamw")
      ->capture_default_str()
      ->check(number_from_zero());
  app.add_option("--betas", o.betas, "of adam and adamw")
      ->capture_default_str()
      ->expected(2)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--epsilon", o.epsilon, "of adam and adamw")
      ->capture_default_str()
      ->check(number_from_zero());
  declare_update_options(app, o);
  app.add_option("--lr-schedule", o.lr_schedule, "constant, step, cosine or one-cycle")
      ->capture_default_str()
      ->check(CLI::IsMember({"constant", "step", "cosine", "one-cycle"}));
  app.add_option("--warmup-steps", o.warmup_steps, "updates of linear warm-up before the schedule")
      ->capture_default_str()
      ->check(whole_number());
  app.add_option("--lr-step-epochs", o.lr_step_epochs, "step schedule: epochs between two cuts")
      ->capture_default_str()
      ->check(whole_number(1, most_epochs));
  app.add_option("--lr-gamma", o.lr_gamma, "step schedule: factor of a cut")
      ->capture_default_str()
      ->check(number_from_zero());
  app.add_flag(
      "--no-graph", o.no_graph,
      "CUDA: enqueue a step's calls one by one, each in a range for nsys, not as one graph");
  app.add_option("--seed", o.seed, "of weights and order")
      ->capture_default_str()
      ->check(whole_number(0, UINT64_MAX));
  app.add_option(
         "--profile", o.profile,
         "what is recorded into RUN/session.prof: off, steps (each step's parts), spans (every "
         "call, loader stage and host function, in windows), deep (and a GPU's kernels)")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "steps", "spans", "deep"}));
  app.add_option("--profile-schedule", o.profile_schedule,
                 "which steps spans and deep record: torch.profiler's schedule over the steps of "
                 "this process, or with "
                 "per=epoch Composer's over each epoch; what is not named keeps its default")
      ->capture_default_str();
  app.add_option("--profile-raw", o.profile_raw,
                 "with deep: a file that CUPTI's raw buffers are kept in, for replaying");
  app.add_option("--profile-rank", o.profile_rank,
                 "of a job of several processes: which this is, and where rank 0 tells its clock, "
                 "so that `warpstep ranks` can lay their profiles over each other")
      ->type_name("RANK@HOST:PORT");
  app.add_flag("--profile-counters", o.profile_counters,
               "with spans or deep: sample the GPU's own counters in windows (multiprocessors, "
               "tensor pipe, DRAM); locks the GPU's clocks");
  app.add_option("--log-every", o.log_every, "steps between two lines of metrics.jsonl")
      ->capture_default_str()
      ->check(whole_number(1));
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "steps between two checkpoints, besides each epoch's; 0: none")
      ->capture_default_str()
      ->check(whole_number());
  app.add_option("--keep-checkpoints", o.keep_checkpoints,
                 "newest checkpoints that are kept; 0: all")
      ->capture_default_str()
      ->check(whole_number());
  app.add_flag("--keep-best,!--no-keep-best", o.keep_best,
               "besides them keep the one with the best evaluation, as best.safetensors (default)");
  app.add_option("--out", o.out, "run directory; runs/MODEL-DATE-TIME when not given");
}

void declare_run_options(CLI::App& app, RunOptions& o) {
  app.add_option("model", o.model, "a model by name: cifar10cnn, resnet50, ...");
  app.add_option("--data", o.data, "folder with the images; docs/data.md has the layouts");
  declare_model_options(app, o);
  declare_training_options(app, o);
  declare_recompute(app, o);
  declare_data_options(app, o);
}

Schedule schedule_of(const RunOptions& o, std::int64_t total_steps, std::int64_t steps_per_epoch) {
  const std::int64_t updates = (total_steps + o.accumulate - 1) / o.accumulate;
  Schedule schedule{.peak = o.lr,
                    .warmup_steps = o.warmup_steps,
                    .total_steps = updates,
                    .period_steps = o.lr_step_epochs * steps_per_epoch / o.accumulate,
                    .gamma = o.lr_gamma};
  using Kind = Schedule::Kind;
  schedule.kind = o.lr_schedule == "step"        ? Kind::step
                  : o.lr_schedule == "cosine"    ? Kind::cosine
                  : o.lr_schedule == "one-cycle" ? Kind::one_cycle
                                                 : Kind::constant;
  if (o.warmup_steps >= updates && o.warmup_steps > 0)
    fail<UsageError>("--warmup-steps {} is longer than the run of {} {}", o.warmup_steps, updates,
                     o.accumulate > 1 ? "updates" : "steps");
  return schedule;
}

}  // namespace warpstep::tools

#include "tools/warpstep/run_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/core/error.h"
#include "tools/warpstep/update_options.h"

namespace warpstep::tools {
namespace {

// One list of all fields serves both directions.
template <class Options, class Visit>
void visit_fields(Options& o, Visit visit) {
  visit("model", o.model);
  visit("data", o.data);
  visit("device", o.device);
  visit("precision", o.precision);
  visit("batch", o.batch);
  visit("epochs", o.epochs);
  visit("steps", o.steps);
  visit("limit_batches", o.limit_batches);
  visit("optimizer", o.optimizer);
  visit("lr", o.lr);
  visit("momentum", o.momentum);
  visit("nesterov", o.nesterov);
  visit("weight_decay", o.weight_decay);
  visit("betas", o.betas);
  visit("epsilon", o.epsilon);
  visit("trust", o.trust);
  visit("loss", o.loss);
  visit("label_smoothing", o.label_smoothing);
  visit("class_weights", o.class_weights);
  visit("clip_norm", o.clip_norm);
  visit("accumulate", o.accumulate);
  visit("ema", o.ema);
  visit("lr_schedule", o.lr_schedule);
  visit("warmup_steps", o.warmup_steps);
  visit("lr_step_epochs", o.lr_step_epochs);
  visit("lr_gamma", o.lr_gamma);
  visit("workers", o.workers);
  visit("prefetch", o.prefetch);
  visit("tier", o.tier);
  visit("transforms", o.transforms);
  visit("eval_transforms", o.eval_transforms);
  visit("normalize", o.normalize);
  visit("shuffle", o.shuffle);
  visit("data_errors", o.data_errors);
  visit("max_bad", o.max_bad);
  visit("memory", o.memory);
  visit("data_io", o.data_io);
  visit("threads", o.threads);
  visit("seed", o.seed);
  visit("exact_math", o.exact_math);
  visit("deterministic", o.deterministic);
  visit("autotune", o.autotune);
  visit("no_graph", o.no_graph);
  visit("workspace_mib", o.workspace_mib);
  visit("plan_cache", o.plan_cache);
  visit("no_fuse", o.no_fuse);
  visit("recompute", o.recompute);
  visit("mean", o.mean);
  visit("std", o.std);
  visit("profile", o.profile);
  visit("profile_schedule", o.profile_schedule);
  visit("profile_raw", o.profile_raw);
  visit("profile_rank", o.profile_rank);
  visit("profile_counters", o.profile_counters);
  visit("log_every", o.log_every);
  visit("checkpoint_every", o.checkpoint_every);
  visit("keep_checkpoints", o.keep_checkpoints);
  visit("keep_best", o.keep_best);
  visit("out", o.out);
}

}  // namespace

// The parser's own checks take "-1" for 2^64 - 1, "nan" for a number, and name a range of 309
// digits.
TextCheck whole_number(std::uint64_t least) {
  return [least](const std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && at == end && value >= least) return std::string();
    return fmt::format("'{}' is not a whole number from {} on", text, least);
  };
}

TextCheck number_from_zero() {
  return [](const std::string& text) {
    char* at = nullptr;
    const double value = std::strtod(text.c_str(), &at);
    if (!text.empty() && *at == 0 && std::isfinite(value) && value >= 0) return std::string();
    return fmt::format("'{}' is not a number from 0 on", text);
  };
}

void to_json(nlohmann::ordered_json& json, const RunOptions& options) {
  json = nlohmann::ordered_json::object();
  visit_fields(options, [&](const char* key, const auto& value) { json[key] = value; });
}

void from_json(const nlohmann::ordered_json& json, RunOptions& options) {
  visit_fields(options, [&](const char* key, auto& value) {
    if (json.contains(key)) json.at(key).get_to(value);
  });
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
      ->check(whole_number());
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
      ->check(whole_number(1));
  app.add_option("--lr-gamma", o.lr_gamma, "step schedule: factor of a cut")
      ->capture_default_str()
      ->check(number_from_zero());
  app.add_flag(
      "--no-graph", o.no_graph,
      "CUDA: enqueue a step's calls one by one, each in a range for nsys, not as one graph");
  app.add_option("--seed", o.seed, "of weights and order")
      ->capture_default_str()
      ->check(whole_number());
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

RunOptions overridden(const CLI::App& app, const RunOptions& typed,
                      const nlohmann::ordered_json& stored) {
  nlohmann::ordered_json merged = stored, given = typed;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    std::string key = option->get_single_name();
    std::replace(key.begin(), key.end(), '-', '_');
    if (given.contains(key)) merged[key] = given[key];
  }
  return merged.get<RunOptions>();
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

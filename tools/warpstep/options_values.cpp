// What the values of options mean for the engine and the loader.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "data/transforms/recipe.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "models/zoo.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"

namespace warpstep::tools {

int RunOptions::loader_threads() const {
  return workers > 0 || cores == 0 ? workers : std::clamp(cores - 1, 1, 8);
}

ShuffleChoice parse_shuffle(const std::string& text) {
  if (text == "full") return {};
  if (text == "none") return {.shuffle = data::Shuffle::none};
  ShuffleChoice choice{.shuffle = data::Shuffle::window};
  if (text == "window") return choice;
  const std::string prefix = "window:";
  if (text.starts_with(prefix)) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + prefix.size(), end, choice.window);
    if (error == std::errc() && at == end && choice.window >= 32) return choice;
  }
  fail<UsageError>("'{}' is not one of full, none, window and window:SAMPLES of at least 32", text);
}

data::Windows parse_windows(const std::string& text) {
  if (text == "shuffled") return data::Windows::shuffled;
  if (text == "random") return data::Windows::random;
  if (text == "sequential") return data::Windows::sequential;
  fail<UsageError>("'{}' is not one of shuffled, random and sequential", text);
}

data::DataErrors parse_data_errors(const std::string& text) {
  if (text == "fail") return data::DataErrors::fail;
  if (text == "skip") return data::DataErrors::skip;
  if (text == "mask") return data::DataErrors::mask;
  fail<UsageError>("--data-errors {}: must be fail, skip or mask", text);
}

data::Alpha parse_alpha(const std::string& text) {
  if (text == "drop") return data::Alpha::drop;
  if (text == "white") return data::Alpha::white;
  if (text == "black") return data::Alpha::black;
  if (text == "refuse") return data::Alpha::refuse;
  fail<UsageError>("--alpha {}: must be drop, white, black or refuse", text);
}

std::uint64_t parse_bytes(const std::string& text) {
  if (text == "none") return 0;
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  const std::string unit(at, end);
  constexpr std::array<std::pair<const char*, unsigned>, 4> units{
      {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  for (const auto& [name, shift] : units)
    if (error == std::errc() && unit == name && number > 0 &&
        number <= (~std::uint64_t{0} >> shift))
      return number << shift;
  fail<UsageError>("'{}' is not an amount of memory; write for example 512MiB, 2GiB or none", text);
}

void check_device(const std::string& text) {
  if (text == "auto" || text == "cpu" || text == "cuda" || text == "ref") return;
  const std::string prefix = "cuda:";
  if (!text.starts_with(prefix))
    fail<UsageError>("no backend is called '{}'; use auto, cpu, cuda, cuda:N or ref", text);
  int number = -1;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + prefix.size(), end, number);
  if (error != std::errc() || at != end || number < 0)
    fail<UsageError>("'{}' is not a device; write cuda, or cuda:0, cuda:1 and so on", text);
}

void check_transforms(const std::string& text) {
  if (text != "auto" && text != "none") data::Recipe recipe(text);
}

std::string training_transforms(const RunOptions& options) {
  if (options.transforms == "none") return {};
  const std::string_view of_model = models::find(options.model).transforms;
  const std::string_view text =
      options.transforms == "auto" ? of_model : std::string_view(options.transforms);
  return data::Recipe(text).text();
}

std::filesystem::path cache_folder(const RunOptions& options) {
  const std::string& text = options.plan_cache;
  if (text == "off") return {};
  if (text != "auto") return text;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return std::filesystem::path(cache) / "warpstep";
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".cache" / "warpstep"
                       : std::filesystem::path();
}

BackendOptions backend_options(const RunOptions& o) {
  const std::filesystem::path plan_cache = cache_folder(o);
  if (o.deterministic && o.autotune && plan_cache.empty())
    fail<UsageError>(
        "--deterministic with --autotune: each measurement may choose another algorithm, and "
        "without a plan cache no choice is kept; name a folder with --plan-cache, or leave out "
        "--autotune");
  return {.threads = o.kernel_threads(),
          .communicator = o.communicator,
          .exact_math = o.exact_math,
          .tf32 = parse_precision(o.precision) == Precision::tf32,
          .deterministic = o.deterministic,
          .autotune = o.autotune,
          .workspace_cap = idx(o.workspace_mib) << 20,
          .plan_cache = plan_cache,
          .assumed_device = {}};
}

LossOptions loss_options(const RunOptions& o, std::int64_t classes) {
  if (!o.class_weights.empty() && o.class_weights.size() != idx(classes))
    fail<UsageError>(
        "--class-weights has {}, but the data have {} classes; give one per class, in the "
        "order of `warpstep data info`",
        counted(o.class_weights.size(), "value"), classes);
  return {.label_smoothing = o.label_smoothing,
          .class_weights = {o.class_weights.begin(), o.class_weights.end()},
          .raw = o.loss == "nll"};
}

LossOptions plain_loss(LossOptions of_training) {
  of_training.label_smoothing = 0;
  of_training.unweighted = !of_training.class_weights.empty();
  return of_training;
}

bool shards_optimizer(const RunOptions& o, std::string_view backend, std::int64_t ranks) {
  if (o.check_numerics) return false;  // it reads the moments of all weights
  if (o.shard_optimizer != "auto") return o.shard_optimizer == "on";
  return backend == "cpu" && ranks > 1 && o.optimizer != "lars" && o.stats_every == 0;
}

UpdateOptions update_options(const RunOptions& o) {
  const bool shards = o.shard_optimizer == "on";
  if (shards && o.optimizer == "lars")
    fail<UsageError>(
        "--shard-optimizer on does not go with --optimizer lars, whose rates need the norm of each "
        "weight's whole gradient; use sgd, adam, adamw or rmsprop");
  if (shards && o.stats_every > 0)
    fail<UsageError>(
        "--shard-optimizer on does not go with --stats-every, which reads the moments of all "
        "weights; "
        "leave out one of them");
  return {.clip_norm = o.clip_norm,
          .accumulate = o.accumulate,
          .replica = {o.world().size, o.world().rank},
          .average_decay = o.ema};
}

namespace {

bool has_moments(const RunOptions& o) {
  return o.optimizer == "adam" || o.optimizer == "adamw" || o.optimizer == "rmsprop" ||
         o.momentum != 0;
}

}  // namespace

std::string update_text(const RunOptions& o) {
  std::string text = fmt::format("{}, lr {}", o.optimizer, o.lr);
  if (o.lr_schedule != "constant") text += fmt::format(" ({})", o.lr_schedule);
  if (o.momentum != 0)
    text += fmt::format(", momentum {}{}", o.momentum, o.nesterov ? " (nesterov)" : "");
  if (o.weight_decay != 0)
    text += fmt::format(", weight decay {}{}", o.weight_decay,
                        o.decay == "matrices" ? " (of matrices)" : "");
  if (o.moments != "fp32" && has_moments(o)) text += fmt::format(", moments in {}", o.moments);
  return text;
}

bool watches_loss(const RunOptions& o, bool is_text) {
  return o.monitor == "loss" || (o.monitor == "auto" && is_text);
}

double default_lr(std::string_view model) {
  const auto& all = models::zoo();
  const auto found = std::ranges::find(all, model, &models::Model::name);
  return found == all.end() ? -1 : found->learning_rate;
}

std::string defaults_text(const RunOptions& o, double model_lr) {
  static const RunOptions defaults;
  std::string text;
  const auto add = [&](const char* name, bool is_default) {
    if (is_default) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  add("--optimizer", o.optimizer == defaults.optimizer);
  add("--lr", o.lr == model_lr);
  add("--lr-schedule", o.lr_schedule == defaults.lr_schedule);
  add("--batch", o.batch == defaults.batch && o.global_batch == 0);
  return text;
}

Optimizer optimizer_of(const RunOptions& o) {
  Optimizer optimizer{.momentum = o.momentum,
                      .nesterov = o.nesterov,
                      .weight_decay = o.weight_decay,
                      .beta1 = o.betas.at(0),
                      .beta2 = o.betas.at(1),
                      .epsilon = o.epsilon,
                      .alpha = o.rms_alpha,
                      .trust = o.trust,
                      .decays_vectors = o.decay == "all",
                      .moment_dtype = o.moments == "bf16" ? DType::bf16 : DType::f32};
  optimizer.kind = o.optimizer == "sgd"       ? Optimizer::Kind::sgd
                   : o.optimizer == "adam"    ? Optimizer::Kind::adam
                   : o.optimizer == "lars"    ? Optimizer::Kind::lars
                   : o.optimizer == "rmsprop" ? Optimizer::Kind::rmsprop
                                              : Optimizer::Kind::adamw;
  if (optimizer.adaptive() && (o.momentum != 0 || o.nesterov))
    fail<UsageError>(
        "--momentum goes with --optimizer sgd, lars or rmsprop, and --nesterov with sgd or lars; "
        "{} has --betas; --momentum 0 and --no-nesterov remove the run's own settings",
        o.optimizer);
  if (optimizer.kind == Optimizer::Kind::rmsprop && o.nesterov)
    fail<UsageError>(
        "--nesterov goes with --optimizer sgd or lars; rmsprop has plain --momentum; --no-nesterov "
        "removes the run's own setting");
  if (optimizer.kind == Optimizer::Kind::rmsprop && o.rms_alpha >= 1)
    fail<UsageError>("--rms-alpha must be below 1");
  if (!optimizer.adaptive() && o.nesterov && o.momentum == 0)
    fail<UsageError>(
        "--nesterov needs a --momentum above 0; --no-nesterov removes the run's own setting");
  if (optimizer.adaptive() && (o.betas[0] >= 1 || o.betas[1] >= 1))
    fail<UsageError>("--betas must be below 1");
  if (optimizer.kind == Optimizer::Kind::lars && o.trust == 0)
    fail<UsageError>(
        "--trust 0: nothing but biases would be trained; PyTorch's usual value is 0.001");
  return optimizer;
}

Schedule schedule_of(const RunOptions& o, std::int64_t total_steps, std::int64_t steps_of_epoch,
                     const Progress& at) {
  if (total_steps > 0 && total_steps < static_cast<std::int64_t>(o.accumulate))
    fail<UsageError>(
        "--accumulate {} is longer than the run of {}: it would never update the weights; give a "
        "smaller one, or more --steps or --epochs",
        o.accumulate, counted(total_steps, "step"));
  // Steps after the last whole accumulation make no update.
  const std::int64_t updates = std::max<std::int64_t>(1, total_steps / o.accumulate);
  Schedule schedule{.peak = o.lr,
                    .warmup_steps = o.warmup_steps,
                    .total_steps = updates,
                    .period_batches = o.lr_step_epochs * steps_of_epoch,
                    .accumulate = o.accumulate,
                    .offset_batches = static_cast<std::int64_t>(
                        at.next.epoch * idx(steps_of_epoch) + at.next.step - at.step),
                    .gamma = o.lr_gamma,
                    .final_fraction = o.lr > 0 ? o.lr_final / o.lr : 0};
  using Kind = Schedule::Kind;
  schedule.kind = o.lr_schedule == "step"        ? Kind::step
                  : o.lr_schedule == "cosine"    ? Kind::cosine
                  : o.lr_schedule == "one-cycle" ? Kind::one_cycle
                                                 : Kind::constant;
  if (o.lr_final > 0 && schedule.kind != Kind::cosine)
    fail<UsageError>("--lr-final goes with --lr-schedule cosine, not {}", o.lr_schedule);
  if (o.lr_final > o.lr) fail<UsageError>("--lr-final {} is above --lr {}", o.lr_final, o.lr);
  if (o.warmup_steps >= updates && o.warmup_steps > 0)
    fail<UsageError>("--warmup-steps {} takes the whole run of {}, and at least one must follow",
                     o.warmup_steps, counted(updates, o.accumulate > 1 ? "update" : "step"));
  return schedule;
}

std::vector<std::string> useless_options(const Parser& parser, const RunOptions& o, bool is_text,
                                         std::string_view backend, std::uint64_t steps_done) {
  const bool is_step = o.lr_schedule == "step", watches = o.patience > 0;
  const bool is_adam = o.optimizer == "adam" || o.optimizer == "adamw";
  const bool is_rmsprop = o.optimizer == "rmsprop";
  struct Need {
    std::string_view option;
    bool is_met;
    std::string_view others;
  };
  std::vector<Need> needs{
      {"--lr-step-epochs", is_step, "--lr-schedule step"},
      {"--lr-gamma", is_step, "--lr-schedule step"},
      {"--lr-final", o.lr_schedule == "cosine", "--lr-schedule cosine"},
      {"--rms-alpha", is_rmsprop, "--optimizer rmsprop"},
      {"--trust", o.optimizer == "lars", "--optimizer lars"},
      {"--betas", is_adam, "--optimizer adam or adamw"},
      {"--epsilon", is_adam || is_rmsprop, "--optimizer adam, adamw or rmsprop"},
      {"--decay", o.weight_decay != 0, "--weight-decay"},
      {"--moments", has_moments(o), "--momentum or another --optimizer"},
      {"--min-delta", watches, "--patience"},
      {"--monitor", watches, "--patience"},
      {"--val-seed", is_text || o.val_split >= 0, "--val-split"},
      {"--max-bad", is_text || o.data_errors != "fail", "--data-errors skip or mask"},
      {"--profile-schedule", o.profile == "spans" || o.profile == "deep",
       "--profile spans or deep"},
  };
  for (const std::string_view option :
       {"--transforms", "--eval-transforms", "--mean", "--std", "--alpha", "--val-seed",
        "--shuffle", "--tier", "--normalize", "--data-errors", "--max-bad"})
    needs.push_back({option, !is_text, "images"});
  const bool is_job = o.world().size > 1;
  needs.push_back({"--sync-bn", is_job, "several ranks"});
  needs.push_back({"--shard-optimizer", is_job || o.shard_optimizer == "off", "several ranks"});
  for (const std::string_view option :
       {"--autotune", "--steps-per-launch", "--no-graph", "--workspace-mib"})
    needs.push_back({option, backend == "cuda", "a CUDA device"});
  for (const std::string_view option : {"--sequence", "--windows"})
    needs.push_back({option, is_text, "text"});
  RunOptions defaults;  // which the config.json of a run gives, too
  defaults.model = o.model;
  std::set<std::string> changed;
  for (const OptionChange& change : changes(defaults, o)) changed.insert(change.name);
  std::vector<std::string> useless;
  for (const Need& need : needs)
    if (!need.is_met && parser.has(need.option) && parser.given(need.option) &&
        changed.contains(std::string(need.option)))
      useless.push_back(fmt::format("{} has no effect without {}", need.option, need.others));
  if (steps_done > 0 && parser.given("--eval-first") && o.eval_first == "on")
    useless.push_back(fmt::format(
        "--eval-first on has no effect on a run that continues after step {}", steps_done));
  return useless;
}

}  // namespace warpstep::tools

#include "tools/warpstep/resume.h"

#include "data/recipe.h"
#include "engine/checkpoint.h"
#include "engine/core/error.h"
#include "engine/loss_scaling.h"
#include "models/zoo.h"
#include "tools/warpstep/data_options.h"
#include "tools/warpstep/update_options.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

// Where to go on when the checkpoint cannot be used.
std::string older_hint(const Resumed& resumed) {
  fs::path older;
  const bool is_best = resumed.checkpoint.filename() == best_name;
  for (const fs::path& path : checkpoints(resumed.run))
    if (is_best || path.filename() < resumed.checkpoint.filename()) older = path;
  if (is_best && !older.empty())
    return fmt::format("; the newest checkpoint may be whole: --resume {}", older.string());
  return older.empty()
             ? "; there is no older checkpoint: start the run again with --overwrite"
             : fmt::format("; the one before it may be whole: --resume {}", older.string());
}

}  // namespace

Resumed find_resumed(const fs::path& spec) {
  Resumed resumed{spec, spec, {}};
  if (fs::is_regular_file(spec))
    resumed.run = spec.has_parent_path() ? spec.parent_path() : fs::path(".");
  else
    resumed.checkpoint = newest_checkpoint(spec);
  try {
    const CheckpointInfo info = read_checkpoint_info(resumed.checkpoint);
    resumed.config = Json::parse(info.config_json, nullptr, false);
    if (resumed.config.is_discarded() || !resumed.config.contains("options") ||
        !resumed.config.contains("data"))
      fail<DataError>("{}: its configuration is broken", resumed.checkpoint.string());
  } catch (const DataError& error) {
    fail<DataError>("{}{}", error.what(), older_hint(resumed));
  }
  return resumed;
}

Json data_json(const data::Dataset& training, const data::Dataset& test) {
  const auto hex = [](std::uint64_t value) { return fmt::format("{:016x}", value); };
  return {{"kind", training.kind()},       {"path", training.path()},
          {"images", training.size()},     {"image_shape", training.image_shape().text()},
          {"classes", training.classes()}, {"fingerprint", hex(training.fingerprint())},
          {"test_images", test.size()},    {"test_fingerprint", hex(test.fingerprint())}};
}

void require_same_data(const Resumed& resumed, const Json& data) {
  const Json& then = resumed.config.at("data");
  for (const auto& [split, size, fingerprint] :
       {std::tuple{"training", "images", "fingerprint"},
        std::tuple{"test", "test_images", "test_fingerprint"}}) {
    if (then.value(fingerprint, "") == data.at(fingerprint)) continue;
    fail<DataError>(
        "{}: the {} data are not those of the run: {} images of fingerprint {} now, {} of {} when "
        "{} was saved; give back the files that it had (names, sizes and labels count), go on "
        "with these by --allow-changed-data, or start a new run with another --out",
        data.at("path").get<std::string>(), split, data.at(size).get<std::uint64_t>(),
        data.at(fingerprint).get<std::string>(), then.value(size, std::uint64_t{0}),
        then.value(fingerprint, "none"), resumed.checkpoint.filename().string());
  }
}

void require_same_run(const Resumed& resumed, const RunOptions& options) {
  const auto then = resumed.config.at("options").get<RunOptions>();
  const auto refuse = [&](const char* what, const std::string& now, const std::string& before) {
    fail<UsageError>("{} {}: the run in {} has {}, which --resume cannot change; a new run can",
                     what, now, resumed.run.string(), before);
  };
  if (options.model != then.model) refuse("model", options.model, then.model);
  if (options.accumulate != then.accumulate)  // the schedule counts updates
    refuse("--accumulate", fmt::format("{}", options.accumulate),
           fmt::format("{}", then.accumulate));
  if (options.optimizer != then.optimizer) refuse("--optimizer", options.optimizer, then.optimizer);
}

namespace {

std::string recipe_of(const RunOptions& options) {
  if (options.transforms == "none") return {};
  const std::string_view own = models::find(options.model).transforms;
  return data::Recipe(options.transforms == "auto" ? own : std::string_view(options.transforms))
      .text();
}

// Weights and moments are kept in f32 whatever the step computes in.
void go_on_in_precision(Precision from, Precision to, Store& store) {
  if (from == to) return;
  store.set_step_state(in_precision(store.step_state(), from, to));
  fmt::print(stderr,
             "--precision {}: the run was in {} so far; its weights and moments, kept in fp32, go "
             "on as they are{}, but the bits will not be those of a run in one precision\n",
             name(to), name(from), to == Precision::fp16 ? ", its loss scale starts afresh" : "");
}

}  // namespace

Progress load_resumed(const Resumed& resumed, const RunOptions& options, Store& store) {
  Progress progress;
  try {
    progress = load_checkpoint(resumed.checkpoint, store, optimizer_of(options).kind);
  } catch (const DataError& error) {
    fail<DataError>("{}{}", error.what(), older_hint(resumed));
  }
  const auto then = resumed.config.at("options").get<RunOptions>();
  go_on_in_precision(parse_precision(then.precision), parse_precision(options.precision), store);
  if (progress.next.step == 0) return progress;
  const auto refuse = [&](const char* option, auto now, auto before) {
    fail<UsageError>(
        "{} {}: {} stands in mid-epoch, after {} batches that were drawn with {} {}; resume with "
        "that, or from a checkpoint at an epoch's end",
        option, now, resumed.checkpoint.filename().string(), progress.next.step, option, before);
  };
  if (options.batch != then.batch) refuse("--batch", options.batch, then.batch);
  if (options.seed != then.seed) refuse("--seed", options.seed, then.seed);
  const ShuffleChoice shuffle = parse_shuffle(options.shuffle);
  if (shuffle != parse_shuffle(then.shuffle)) refuse("--shuffle", options.shuffle, then.shuffle);
  if (recipe_of(options) != recipe_of(then))
    refuse("--transforms", options.transforms, then.transforms);
  if (options.limit_batches > 0 && progress.next.step >= options.limit_batches)
    fail<UsageError>(
        "--limit-batches {}: {} stands in mid-epoch, after {} batches; resume with more",
        options.limit_batches, resumed.checkpoint.filename().string(), progress.next.step);
  return progress;
}

}  // namespace warpstep::tools

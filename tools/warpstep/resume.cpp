#include "tools/warpstep/resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/formats/content.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/files/checkpoint.h"
#include "engine/passes/precision.h"
#include "models/zoo.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/subject.h"
#include "tools/warpstep/summary.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

// Where to continue if the checkpoint cannot be used.
std::string older_hint(const Resumed& resumed) {
  fs::path older;
  const bool is_best = resumed.checkpoint.filename() == best_name;
  std::error_code unknown;
  for (const fs::path& path : checkpoints(resumed.run))
    if (is_best ? !fs::equivalent(path, resumed.checkpoint, unknown)  // best is a link to one
                : path.filename() < resumed.checkpoint.filename())
      older = path;
  if (is_best && !older.empty())
    return fmt::format("; the newest checkpoint may be intact: --resume {}",
                       shell_word(older.string()));
  return older.empty() ? "; there is no older checkpoint: start the run again with --overwrite"
                       : fmt::format("; the one before it may be intact: --resume {}",
                                     shell_word(older.string()));
}

}  // namespace

fs::path run_of(const fs::path& spec) {
  if (!fs::is_regular_file(spec)) return spec;
  return spec.has_parent_path() ? spec.parent_path() : fs::path(".");
}

namespace {

// Each process writes config.json as it begins, and its checkpoints have the same configuration.
// One that differs is the newer one where the times of both are equal.
std::shared_ptr<const Json> unsaved_config(const Resumed& resumed) try {
  const fs::path file = resumed.run / "config.json";
  std::error_code no_config, no_checkpoint;
  const auto begun = fs::last_write_time(file, no_config);
  const auto saved = fs::last_write_time(resumed.checkpoint, no_checkpoint);
  if (no_config || no_checkpoint || begun < saved) return nullptr;
  Json config = parse_json<Json>(read_file(file));
  if (!config.is_object()) return nullptr;
  config.erase(started_key);  // checkpoints do not have it
  if (config == *resumed.config) return nullptr;
  return std::make_shared<const Json>(std::move(config));
} catch (const DataError&) {  // the checkpoint has all that the run needs
  return nullptr;
}

void take_unsaved_options(const Parser& parser, const RunOptions& typed, Resumed& resumed) {
  const std::string file = (resumed.run / "config.json").string();
  try {
    RunOptions options = stored_options(*resumed.unsaved, file, parser, typed);
    const auto is_other_run = [](const OptionChange& c) { return c.resume == Resume::never; };
    if (std::ranges::any_of(changes(resumed.options, options), is_other_run)) return;
    resumed.latest = std::move(options);
    resumed.latest_config = resumed.unsaved;
  } catch (const DataError& error) {
    say("{}; the run continues with the options of {}\n", error.what(),
        resumed.checkpoint.string());
  }
}

}  // namespace

Resumed find_resumed(const fs::path& spec, const Parser& parser, const RunOptions& typed) {
  Resumed resumed;
  resumed.run = run_of(spec);
  const bool is_run = !fs::is_regular_file(spec);
  if (!is_run && (spec.extension() == ".json" || spec.extension() == ".jsonl"))
    fail<DataError>(
        "{}: is not a checkpoint; give the run directory, {}, or one of its .safetensors",
        spec.string(), shell_word(resumed.run.string()));
  resumed.checkpoint = is_run ? newest_checkpoint(spec) : spec;
  try {
    const CheckpointInfo info = read_checkpoint_info(resumed.checkpoint);
    const std::string file = resumed.checkpoint.string();
    resumed.config = std::make_shared<const Json>(parse_json<Json>(info.config_json));
    resumed.options = stored_options(*resumed.config, file, parser, typed);
    if (!resumed.config->contains("data") || !resumed.config->at("data").is_object())
      fail<DataError>("{}: its configuration is broken: it has no object 'data'", file);
    resumed.progress = read_progress(resumed.checkpoint);
  } catch (const DataError& error) {
    fail<DataError>("{}{}", error.what(), older_hint(resumed));
  }
  resumed.latest_config = resumed.config;
  resumed.latest = resumed.options;
  resumed.unsaved = unsaved_config(resumed);
  if (is_run && resumed.unsaved) take_unsaved_options(parser, typed, resumed);
  return resumed;
}

void require_run_directory(const Resumed& resumed) {
  if (fs::exists(resumed.run / "config.json")) return;
  fail<UsageError>(
      "--resume {}: the run continues in its checkpoint's folder, and {} is not a run directory: "
      "it "
      "has no config.json; move the checkpoint back into its run, or start a new run from its "
      "weights with --weights",
      resumed.checkpoint.string(), resumed.run.string());
}

namespace {

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

Json text_json(const RunOptions& options, const Source& training, const Source& test) {
  Json json{{"kind", training.kind()},
            {"path", training.path()},
            {"folder", data_folder(options)},
            {"vocabulary", training.text->vocabulary},
            {"sequence", training.windows.sequence},
            {"tokens", training.tokens.size()},
            {"fingerprint", hex(training.tokens.fingerprint())},
            {"test_tokens", test.tokens.size()},
            {"test_fingerprint", hex(test.tokens.fingerprint())}};
  if (const auto end = training.text->end_of_text)
    json["end_of_text"] = training.tokens.has(static_cast<std::uint32_t>(*end));
  // One beside data that had none when the run began may know more tokens than the run.
  if (training.text->tokenizer == training.text->vocabulary_from) {
    json["tokenizer"] = *training.text->tokenizer;
    json["tokenizer_checksum"] = fmt::format("{:08x}", training.text->tokenizer_checksum);
  }
  return json;
}

Json images_json(const RunOptions& options, const data::Dataset& training,
                 const data::Dataset& test) {
  Json json{{"kind", training.kind()},
            {"path", training.path()},
            {"folder", data_folder(options)},
            {"images", training.size()},
            {"image_shape", training.image_shape().text()},
            {"classes", training.classes()}};
  for (const data::Dataset* set : {&training, &test}) {
    const std::string of = set == &test ? "test_" : "";
    const data::Content content = data::content_of(*set);
    json[of + "images"] = set->size();
    json[of + "fingerprint"] = hex(set->fingerprint());
    json[of + "content"] = hex(content.sample);
    if (content.times == 0) continue;
    json[of + "times"] = hex(content.times);
    json[of + "newest_ns"] = content.newest_ns;
  }
  return json;
}

}  // namespace

Json data_json(const RunOptions& options, const Source& training, const Source& test) {
  return training.is_text() ? text_json(options, training, test)
                            : images_json(options, *training.dataset, *test.dataset);
}

namespace {

// A field's text or number as text, for comparing and for messages; "none" where it is neither.
std::string text_at(const Json& json, const std::string& key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_structured()) return "none";
  return found->is_string() ? found->get<std::string>() : brief(*found);
}

// Notes files whose times suggest a change.
void note_times(const Resumed& resumed, const Json& data, const std::string& of,
                const data::Dataset& set) {
  const Json& then = resumed.config->at("data");
  const std::string times = text_at(then, of + "times");
  if (times == "none" || times == text_at(data, of + "times")) return;
  const auto newest = then.find(of + "newest_ns");
  const std::vector<std::string> written = data::written_after(
      set, newest != then.end() && newest->is_number_integer() ? newest->get<std::int64_t>() : 0);
  say("{}: {}; the compared samples have the same bytes as before, so the run continues\n",
      set.path(),
      written.empty()
          ? std::string("files have other times than when the run was saved")
          : fmt::format(
                "{} written since the run was saved ({})",
                written.size() == 1 ? "a file was" : fmt::format("{} files were", written.size()),
                data::first_few(written)));
}

}  // namespace

void require_same_data(const Resumed& resumed, const Json& data, const Source& training,
                       const Source& test) {
  const Json& then = resumed.config->at("data");
  const std::string items = training.is_text() ? "tokens" : "images";
  constexpr const char* ways_out =
      "continue with these data by --allow-changed-data, or start a new run with another --out";
  // The same ids mean other words by another tokenizer, even where it has as many.
  const std::string checksum = text_at(data, "tokenizer_checksum"),
                    own = text_at(then, "tokenizer_checksum");
  if (checksum != "none" && own != "none" && checksum != own)
    fail<DataError>(
        "{}: is not the tokenizer of the run: its checksum is {} now, and was {} when {} was "
        "saved; restore the file, of which {} has a copy, {}",
        text_at(data, "tokenizer"), checksum, own, resumed.checkpoint.filename().string(),
        resumed.run.string(), ways_out);
  for (const Source* set : {&training, &test}) {
    const std::string of = set == &test ? "test_" : "";
    const std::string split = set == &test ? "test" : "training";
    if (text_at(then, of + "fingerprint") != text_at(data, of + "fingerprint"))
      fail<DataError>(
          "{}: the {} data are not those of the run: {} {} of fingerprint {} now, {} of {} "
          "when {} was saved; restore its files{}, {}",
          training.path(), split, text_at(data, of + items), items,
          text_at(data, of + "fingerprint"), text_at(then, of + items),
          text_at(then, of + "fingerprint"), resumed.checkpoint.filename().string(),
          training.is_text() ? "" : " (names, sizes and labels count)", ways_out);
    if (set->is_text()) continue;
    const std::string content = text_at(then, of + "content");
    if (content != "none" && content != text_at(data, of + "content"))
      fail<DataError>(
          "{}: the {} data are not those of the run: names, sizes and labels are "
          "the same, but the bytes of images differ; restore the files that it had when {} was "
          "saved, {}",
          training.path(), split, resumed.checkpoint.filename().string(), ways_out);
    note_times(resumed, data, of, *set->dataset);
  }
}

void require_same_run(const Resumed& resumed, const RunOptions& options) {
  for (const OptionChange& change : changes(resumed.options, options))
    if (change.resume == Resume::never)
      fail<UsageError>("{}: the run in {} has {}, which --resume cannot change; start a new run",
                       change.option, resumed.run.string(), change.before);
  if (resumed.options.momentum == 0 && optimizer_of(options).momentum != 0)
    fail<UsageError>(
        "--momentum {}: the run in {} has none so far, so {} has no momentum to continue with; "
        "start a new run from its weights: --weights {}",
        options.momentum, resumed.run.string(), resumed.checkpoint.filename().string(),
        shell_word(resumed.checkpoint.string()));
}

namespace {

// "; changed: --lr 0.01 (was 0.1)", or nothing.
std::string changed_text(const Resumed& resumed, const RunOptions& now) {
  std::vector<std::string> changed;
  const std::vector<OptionChange> unsaved = changes(resumed.options, resumed.latest);
  for (const OptionChange& change : changes(resumed.options, now)) {
    if (change.name == "--out" || change.name == "--data") continue;
    const bool by_config = std::ranges::any_of(
        unsaved, [&](const OptionChange& c) { return c.option == change.option; });
    changed.push_back(fmt::format("{} (was {}{})", change.option, change.before,
                                  by_config ? "; as in config.json" : ""));
  }
  return changed.empty() ? "" : fmt::format("; changed: {}", fmt::join(changed, ", "));
}

// Weights and moments are kept alike in every precision.
void continue_in_precision(const fs::path& file, Precision from, Precision to, Store& store) {
  if (from == to) return;
  const StepState& state = store.step_state();
  if (state.update == 0 && (from == Precision::fp16) != (to == Precision::fp16))
    fail<UsageError>(
        "--precision {}: {} is between two updates (--accumulate), and its sums of gradients are "
        "those of a loss scale of {}; resume with --precision {}, or from a checkpoint after an "
        "update",
        name(to), file.string(), state.loss_scale, name(from));
  store.set_step_state(in_precision(store.step_state(), from, to));
  say("--precision {}: the run was in {} so far; its fp32 weights and its moments stay "
      "unchanged{}, but the bits will differ from those of a run in one precision\n",
      name(to), name(from), to == Precision::fp16 ? ", its loss scale starts over" : "");
}

// The sums of gradients of a checkpoint in between two updates are those of all ranks that wrote
// it, and the update takes the mean over the ranks there are now. Rank 0 has them.
void take_sums(int ranks_then, const World& world, Store& store) {
  const float scale = static_cast<float>(world.size) / static_cast<float>(ranks_then);
  if (world.rank == 0 && scale == 1) return;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    std::vector<float> sums = store.read(p, Store::Section::accumulator);
    for (float& sum : sums) sum = world.rank == 0 ? scale * sum : 0;
    store.write(p, sums, Store::Section::accumulator);
  }
}

// Weights that do not fit may be those for images of another size.
void require_size_of_run(const Resumed& resumed, const RunOptions& options,
                         const Source& training) {
  if (training.is_text()) return;
  const std::optional<Shape> trained = trained_row_of(*resumed.config, resumed.options);
  if (!trained) return;
  std::string by = training.path();
  for (const OptionChange& change : changes(resumed.options, options))
    if (change.name == "--transforms") by = change.option;
  require_trained_size(options, training, *trained, by, "--transforms", by != training.path());
}

}  // namespace

Progress load_resumed(const Resumed& resumed, const RunOptions& options, const Source& training,
                      std::uint64_t epoch_steps, Store& store) {
  Progress progress;
  try {
    progress = load_checkpoint(resumed.checkpoint, store, optimizer_of(options).kind);
    const fs::path name = resumed.checkpoint.filename();
    if (is_checkpoint_name(name.string()) && step_of(name) != progress.step)
      fail<DataError>("{}: its metadata has 'step' {}, and its name step {}",
                      resumed.checkpoint.string(), progress.step, step_of(name));
    if (store.step_state().micro_step >= std::max(1, static_cast<int>(options.accumulate)))
      fail<DataError>("{}: its metadata has 'micro_step' {}, which is not below --accumulate {}",
                      resumed.checkpoint.string(), store.step_state().micro_step,
                      options.accumulate);
  } catch (const DataError& error) {
    require_size_of_run(resumed, options, training);
    fail<DataError>("{}{}", error.what(), older_hint(resumed));
  }
  if (store.step_state().update == 0) take_sums(ranks_of(*resumed.config), options.world(), store);
  const RunOptions& then = resumed.options;
  continue_in_precision(resumed.checkpoint, parse_precision(then.precision),
                        parse_precision(options.precision), store);
  if (progress.next.step == 0) return progress;
  const std::string file = resumed.checkpoint.filename().string();
  for (const OptionChange& change : changes(then, options))
    if (change.resume == Resume::at_epoch_end)
      fail<UsageError>(
          "{}: {} is in mid-epoch, after {} batches that were drawn with {} {}; resume with that, "
          "or from a checkpoint at the end of an epoch",
          change.option, file, progress.next.step, change.name, change.before);
  if (options.limit_batches > 0 && progress.next.step >= options.limit_batches)
    fail<UsageError>("--limit-batches {}: {} is in mid-epoch, after {} batches; resume with more",
                     options.limit_batches, file, progress.next.step);
  if (progress.next.step >= epoch_steps)
    fail<DataError>(
        "{} is in mid-epoch, after {} batches, and an epoch of the data as they are now has {}; "
        "resume from a checkpoint at the end of an epoch",
        file, progress.next.step, epoch_steps);
  return progress;
}

std::string continuation_text(const Resumed& resumed, const RunOptions& options,
                              const Progress& progress) {
  return fmt::format("{} continues after step {}, in epoch {}{}", resumed.run.string(),
                     grouped(progress.step), progress.next.epoch + 1,
                     changed_text(resumed, options));
}

std::string nothing_left(const Resumed& resumed, const RunOptions& options,
                         const Progress& progress) {
  const bool by_steps = options.steps > 0 && progress.step >= options.steps;
  const bool by_epochs = options.epochs > 0 && progress.next.epoch >= options.epochs;
  const bool by_patience =
      options.patience > 0 && progress.watch && progress.watch->worse >= options.patience &&
      progress.watch->loss == watches_loss(options, models::find(options.model).is_text());
  if (!by_steps && !by_epochs && !by_patience) return {};
  if (!progress.evaluation || progress.evaluation->step != progress.step) return {};
  // A run that was stopped between its last checkpoint and its summary still needs the summary, and
  // so does one that has another config.json since.
  const Json summary = resumed.unsaved ? own_summary(resumed.run) : earlier_summary(resumed.run);
  const std::string outcome = summary.value("outcome", "interrupted");
  const bool is_concluded =
      (outcome == "finished" || outcome == "stopped early") && summary.at("steps") == progress.step;
  std::error_code unknown;  // the best checkpoint may be a link to the newest
  if (!is_concluded && fs::equivalent(resumed.checkpoint, newest_checkpoint(resumed.run), unknown))
    return {};
  if (!by_steps && !by_epochs)
    return fmt::format(
        "{0}: nothing to do and nothing changed: the run ended early, after {1} without a better "
        "one; to continue: warpstep train --resume {2} --patience 0, or a larger one",
        resumed.run.string(), counted(progress.watch->worse, "evaluation"),
        shell_word(resumed.run.string()));
  return fmt::format(
      "{0}: nothing to do and nothing changed: the run has done {1} and {2}, and {3} asks for no "
      "more; to continue: warpstep train --resume {4} --epochs N, or --steps N, in all",
      resumed.run.string(), counted(progress.next.epoch, "epoch"), counted(progress.step, "step"),
      by_steps ? fmt::format("--steps {}", options.steps)
               : fmt::format("--epochs {}", options.epochs),
      shell_word(resumed.run.string()));
}

void require_end_ahead(const Resumed& resumed, const RunOptions& options,
                       const Progress& progress) {
  const Position& next = progress.next;
  const bool by_steps = options.steps > 0 && progress.step > options.steps;
  const bool by_epochs = options.epochs > 0 && (next.epoch > options.epochs ||
                                                (next.epoch == options.epochs && next.step > 0));
  if (!by_steps && !by_epochs) return;
  fail<UsageError>(
      "{}: {} is after {} already ({}{}); --steps and --epochs are the length of the whole run, so "
      "give a larger number, or an older checkpoint of it; warpstep eval {} evaluates this one",
      by_steps ? fmt::format("--steps {}", options.steps)
               : fmt::format("--epochs {}", options.epochs),
      resumed.checkpoint.string(), counted(progress.step, "step"), counted(next.epoch, "epoch"),
      next.step == 0 ? "" : fmt::format(" and {} of the next", counted(next.step, "step")),
      shell_word(resumed.checkpoint.string()));
}

}  // namespace warpstep::tools

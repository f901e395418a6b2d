// warpstep eval: loss and accuracy of saved weights.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/files/safetensors.h"
#include "engine/run/program.h"
#include "engine/run/runner.h"
#include "engine/run/trainer.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/huggingface.h"
#include "tools/warpstep/logits.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"
#include "tools/warpstep/subject.h"
#include "tools/warpstep/text_table.h"

namespace warpstep::tools {
namespace {

// UsageError for a name that is not *.safetensors, and for --data-errors that leave images out.
void check_logits_path(const std::string& path, bool confusion, const RunOptions& options) {
  if (confusion && options.data_errors != "fail")
    fail<UsageError>("--confusion counts every image; add --data-errors fail");
  if (path.empty()) return;
  if (!path.ends_with(".safetensors"))
    fail<UsageError>("--logits {}: is written as safetensors, so name it X.safetensors", path);
  require_no_checkpoint(path);
  if (options.data_errors != "fail")
    fail<UsageError>(
        "--logits has a row for every image, but --data-errors {} may leave some out; add "
        "--data-errors fail",
        options.data_errors);
}

// Logits are kept in memory until they are written.
void check_logits_size(const Program& program, Source& source, std::uint64_t limit_batches) {
  constexpr double most_bytes = 4.0 * (1 << 30);
  const Type& logits = program.graph().value(program.graph().logits).type;
  std::uint64_t steps = source.batches().steps_per_epoch();
  if (limit_batches > 0) steps = std::min(steps, limit_batches);
  const auto of_step = static_cast<double>(logits.shape.count()) * sizeof(float);
  if (of_step * static_cast<double>(steps) <= most_bytes) return;
  const auto fits = static_cast<std::uint64_t>(most_bytes / of_step);
  fail<UsageError>(
      "--logits would keep {:.1f} GiB, {} numbers for each of {}; the limit is 4 GiB: {}",
      of_step * static_cast<double>(steps) / (1 << 30), grouped(logits.shape.back()),
      source.is_text() ? "the tokens" : "the images",
      fits > 0 ? fmt::format("evaluate a part, --limit-batches {}", fits)
               : "evaluate a part in smaller batches, --batch 1 --limit-batches 1");
}

// A safetensors file: `logits` F32 [images, classes] and `label` I64 [images], in the data's order,
// and the classes' names as a JSON array in its metadata; or [tokens, vocabulary], where a label is
// the token that follows.
void write_logits(const std::filesystem::path& path, LogitsKeeper& keeper, const Source& source) {
  const std::span<const float> logits = keeper.finish();
  const std::span<const std::int64_t> labels = keeper.labels();
  const std::size_t rows = labels.size(), classes = rows > 0 ? logits.size() / rows : 0;
  const std::vector<TensorToStore> tensors{
      {"label", StoredType::i64, {rows}, std::as_bytes(labels)},
      {"logits", StoredType::f32, {rows, classes}, std::as_bytes(logits)}};
  Metadata metadata{{"data", utf8(source.path())}};
  if (!source.is_text())
    metadata.emplace("classes", printed(nlohmann::json(source.dataset->classes())));
  write_safetensors(path, tensors, metadata);
}

// How often images of a class (row) were taken for each class (column).
using Confusion = std::vector<std::vector<std::int64_t>>;

Confusion confusion_of(std::span<const float> logits, const data::Dataset& dataset) {
  const std::size_t classes = dataset.classes().size();
  Confusion counts(classes, std::vector<std::int64_t>(classes));
  for (std::size_t i = 0; i < logits.size() / classes; ++i) {
    const auto row = logits.subspan(i * classes, classes);
    const auto guess = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
    ++counts[static_cast<std::size_t>(dataset.label(i))][guess];
  }
  return counts;
}

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// The whole matrix of few classes; of many the pairs most often confused.
void print_confusion(const Confusion& counts, const std::vector<std::string>& classes) {
  constexpr std::size_t most_columns = 20, most_pairs = 20;
  TextTable table{{{"class"}, {"images", true}, {"correct", true}}, {}};
  const bool whole = classes.size() <= most_columns;
  for (std::size_t j = 0; whole && j < classes.size(); ++j)
    table.columns.push_back({data::shown(classes[j]), true});
  std::vector<std::tuple<std::int64_t, std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::int64_t images = sum(counts[i]);
    const double share =
        images ? static_cast<double>(counts[i][i]) / static_cast<double>(images) : 0;
    auto& row = table.rows.emplace_back(
        std::vector{data::shown(classes[i]), grouped(images), images ? percent(share) : "-"});
    for (std::size_t j = 0; j < classes.size(); ++j) {
      if (whole) row.push_back(grouped(counts[i][j]));
      if (i != j && counts[i][j] > 0) pairs.emplace_back(-counts[i][j], i, j);
    }
  }
  fmt::print("\n{}", table.text());
  if (whole) return;
  std::ranges::sort(pairs);
  fmt::print("most often confused:\n");
  for (std::size_t k = 0; k < std::min(pairs.size(), most_pairs); ++k) {
    const auto& [count, i, j] = pairs[k];
    fmt::print("  {} predicted as {}: {}\n", data::shown(classes[i]), data::shown(classes[j]),
               grouped(-count));
  }
}

struct EvalRequest {
  RunOptions options;
  SubjectRequest subject;
  std::string logits;
  std::string split = "test";
  bool check_numerics = false;
  bool confusion = false;
  bool json = false;
};

Subject subject_of(const Parser& parser, const EvalRequest& request) {
  Subject subject(parser, request.subject, request.options,
                  {"run", "--checkpoint", "--split", "--weights", "--allow-missing", "--logits",
                   "--check-numerics", "--no-ema", "--json", "--confusion"});
  RunOptions& options = subject.options;
  if (subject.is_run()) {
    locate_data(subject.config(), subject.checkpoint().string(), parser, options);
    // As with images, data's own part counts more than the share that the run took of others.
    if (models::find(options.model).is_text() && !parser.given("--val-split") &&
        data::has_val_tokens(options.data))
      options.val_split = -1;
  } else if (options.data.empty())
    fail<UsageError>("which data? Give a folder with --data: {} is a model, not a run",
                     options.model);
  return subject;
}

// Of folders test/ and val/ only the first is read.
void refuse_unread_val(const std::string& folder) {
  if (!has_unread_val(folder)) return;
  fail<UsageError>(
      "--split val: {} has test/ and val/, of which evaluation reads test/; give --split test, or "
      "evaluate val/ as the test/ of another folder",
      folder);
}

// Of the images that a run was trained on, another part would have some of those.
void refuse_other_part(const Parser& parser, const Subject& subject) {
  const RunOptions& options = subject.options;
  const models::Model& model = models::find(options.model);
  if (model.is_text()) return;
  if (parser.given("--val-split")) refuse_second_split(options, model);
  if (!subject.is_run() || options.val_split < 0) return;
  for (const OptionChange& change : changes(subject.stored(), options)) {
    if (change.name != "--val-split" && change.name != "--val-seed") continue;
    RunOptions as_trained = options;
    as_trained.val_split = subject.stored().val_split;
    as_trained.val_seed = subject.stored().val_seed;
    const Source training = open_source(as_trained, model, data::Split::train, data::Split::train);
    const auto then = subject.config().find("data");
    if (then != subject.config().end() && then->is_object() &&
        then->value("fingerprint", Json()) ==
            fmt::format("{:016x}", training.dataset->fingerprint()))
      fail<UsageError>(
          "{}: the run has {}, so any other part of its data has images that it was trained on; "
          "leave the option out",
          change.option, change.before);
  }
}

// Measuring it on other images than the training images would be a silent mistake.
void require_normalization(RunOptions& options, const Source& source) {
  if (source.is_text()) return;
  if (options.mean.empty() && options.std.empty() && source.recipe.normalizes())
    fail<UsageError>(
        "give the --mean and --std that these weights were trained with; torchvision's are --mean "
        "0.485 0.456 0.406 --std 0.229 0.224 0.225");
  resolve_normalization(options, source, source);
}

struct Measured {
  Score score;
  Confusion confusion;                // with --confusion
  std::vector<std::string> bad_rows;  // why each was left out, with --data-errors skip or mask
};

// Loaders run ahead of the batches that were evaluated.
std::vector<std::string> bad_rows_of(const Source& source, std::uint64_t limit_batches) {
  std::vector<std::string> messages;
  for (const data::BadSample& bad : source.loader->bad_samples())
    if (bad.position.epoch == 0 && (limit_batches == 0 || bad.position.step < limit_batches))
      messages.push_back(bad.message);
  return messages;
}

void note_bad_rows(const std::vector<std::string>& messages, const Score& score) {
  constexpr std::size_t most = 3;
  if (messages.empty()) return;
  for (const std::string& message : std::span(messages).first(std::min(messages.size(), most)))
    say("{}\n", printable(message));
  const auto left_out = static_cast<std::int64_t>(messages.size());
  say("note: {} of {} could not be decoded and {} not counted in any figure{}\n", grouped(left_out),
      counted(score.count + left_out, "image"), left_out == 1 ? "is" : "are",
      messages.size() > most ? fmt::format("; the first {} are above", most) : "");
}

Measured measure(Program& program, Source& source, const EvalRequest& request,
                 std::uint64_t limit_batches) {
  std::unique_ptr<Runner> runner;  // null: the usual one
  if (request.check_numerics) {
    say("{}\n", slow_check);
    runner = numerics_runner(program);
  }
  if (request.logits.empty() && !request.confusion)
    return {evaluate(program, source.batches(), limit_batches, runner.get()),
            {},
            bad_rows_of(source, limit_batches)};
  check_logits_size(program, source, limit_batches);
  LogitsKeeper keeper(source.batches(), program);
  Measured measured{evaluate(program, keeper, limit_batches, runner.get()), {}, {}};
  if (!request.logits.empty()) write_logits(request.logits, keeper, source);
  if (request.confusion) measured.confusion = confusion_of(keeper.finish(), *source.dataset);
  return measured;
}

void print(const EvalRequest& request, const Subject& subject, const Source& source,
           const Measured& measured) {
  const Items items = source.is_text() ? Items::tokens : Items::images;
  const Score& score = measured.score;
  const std::string& weights = request.subject.weights.file;
  const std::string what = subject.file().string();
  if (request.json) {
    Json result{{weights.empty() ? "checkpoint" : "weights", what},
                {"data", subject.options.data},
                {"split", request.split},
                {std::string(name(items)), score.count},
                {"correct", score.correct},
                {"accuracy", score.accuracy()},
                {"loss", score.loss()}};
    if (items == Items::tokens) result["perplexity"] = std::exp(score.loss());
    if (items == Items::images) result["bad_rows"] = measured.bad_rows.size();
    if (request.confusion) {
      result["classes"] = source.dataset->classes();
      result["confusion"] = measured.confusion;
    }
    fmt::print("{}\n", printed(result, 2));
    return;
  }
  fmt::print("{} on the {} {} of {}: ", printable(what), request.split, name(items),
             printable(subject.options.data));
  if (items == Items::tokens)
    fmt::print("loss {}, {} on {}\n", loss_text(score.loss()), quality_text(score, items),
               grouped(score.count));
  else
    fmt::print("accuracy {} ({} of {}), loss {}\n", percent(score.accuracy()),
               grouped(score.correct), grouped(score.count), loss_text(score.loss()));
  if (request.confusion) print_confusion(measured.confusion, source.dataset->classes());
}

// Ids of another tokenizer mean other words, even where there are as many.
void require_same_tokenizer(const Subject& subject, const data::TokenData& data) {
  namespace fs = std::filesystem;
  const fs::path own = subject.checkpoint().parent_path() / "tokenizer.json";
  const std::optional<std::string>& theirs =
      data.tokenizer ? data.tokenizer : data.unused_tokenizer;
  if (!theirs || !fs::exists(own) || read_file(own) == read_file(*theirs)) return;
  fail<DataError>(
      "{}: is not the tokenizer of the run, {}; make the tokens with it: warpstep data tokenize "
      "TEXT... OUT --tokenizer {}",
      *theirs, own.string(), shell_word(own.string()));
}

// Names of classes that only count them say nothing.
bool are_numbers(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] != std::to_string(i)) return false;
  return true;
}

void note_other_names(const data::Dataset& set, const std::vector<std::string>& then) {
  const std::vector<std::string>& now = set.classes();
  if (are_numbers(then) || are_numbers(now)) return;
  const auto [theirs, ours] = std::ranges::mismatch(then, now);
  if (theirs == then.end() || ours == now.end()) return;
  say("note: {}: class {} is '{}', and in the run '{}'; the model knows a class by its number, so "
      "the accuracy means little if the names do\n",
      set.path(), ours - now.begin(), data::shown(*ours), data::shown(*theirs));
}

// What would otherwise be reported as tensors of other shapes, or counts of --mean.
void require_same_kind(const Subject& subject, Source& source) {
  if (source.is_text()) {
    require_same_tokenizer(subject, *source.text);
    use_vocabulary_of_run(subject.config(), subject.checkpoint().string(), subject.options, source);
    return;
  }
  const auto& then = fields::child(subject.config(), "data");
  const std::string shape = fields::text(then, "image_shape");
  const std::string now = source.dataset->image_shape().text();
  const auto colour = [](const std::string& text) {
    return text.ends_with("x1") ? "gray" : text.ends_with("x3") ? "RGB" : "other";
  };
  if (!shape.empty() && std::string_view(colour(shape)) != colour(now))
    fail<DataError>("{}: the run was trained on {} images, and these are {}; convert them{}",
                    source.dataset->path(), colour(shape), colour(now),
                    !source.dataset->kind().ends_with("folder") ? ""
                    : colour(now) == std::string_view("gray")
                        ? ", for example with: mogrify -define png:color-type=2 *.png"
                        : ", for example with: mogrify -colorspace Gray *.png");
  const auto* const classes = fields::member(then, "classes");
  if (classes == nullptr || !classes->is_array()) return;
  std::vector<std::string> names;
  for (const auto& name : *classes)
    if (name.is_string()) names.push_back(name.get<std::string>());
  if (classes->size() == source.dataset->classes().size())
    return note_other_names(*source.dataset, names);
  const auto count = [](std::size_t n) { return fmt::format("{} class{}", n, n == 1 ? "" : "es"); };
  fail<DataError>(
      "{}: has {} ({}), but the run was trained on {} ({}); evaluate on the same classes",
      source.dataset->path(), count(source.dataset->classes().size()),
      data::first_few(source.dataset->classes()), count(classes->size()), data::first_few(names));
}

// Images or sequences that the run itself evaluates: --limit-batches is of each rank, with its
// batch. 0: all of them, or the command line has a limit of its own.
double limit_of_run(const Parser& parser, const Subject& subject) {
  if (!subject.is_run() || parser.given("--limit-batches")) return 0;
  const RunOptions& run = subject.stored();
  return static_cast<double>(run.limit_batches) * ranks_of(subject.config()) *
         static_cast<double>(run.batch);
}

std::uint64_t batches_of(double samples, std::int64_t batch) {
  constexpr double most = 1e18;  // above any set
  return static_cast<std::uint64_t>(
      std::min(most, std::ceil(samples / static_cast<double>(batch))));
}

// Where only a part is evaluated, or where the run evaluated only a part.
void note_limit(double of_run, const RunOptions& options, const Source& source) {
  if (of_run == 0) return;
  const std::uint64_t steps = source.loader->steps_per_epoch(),
                      taken = std::min(steps, options.limit_batches);
  const auto all =
      static_cast<std::int64_t>(source.is_text() ? steps * idx(options.batch) : source.size());
  const std::int64_t samples = std::min(all, static_cast<std::int64_t>(taken) * options.batch);
  if (of_run >= static_cast<double>(all)) return;
  const std::string how =
      static_cast<double>(samples) == of_run
          ? ", as in the run"
          : fmt::format(", {}; the run evaluated {}",
                        counted(samples, source.is_text() ? "sequence" : "image"), grouped(of_run));
  say("note: {} of {} batches are evaluated{}{}\n", taken, steps, how,
      taken < steps ? "; --limit-batches 0 takes all" : "");
}

int evaluate_run(const Parser& parser, const EvalRequest& request) {
  Subject subject = subject_of(parser, request);
  RunOptions& options = subject.options;
  check_logits_path(request.logits, request.confusion, options);
  const double of_run = limit_of_run(parser, subject);
  if (of_run > 0) options.limit_batches = batches_of(of_run, options.batch);
  const Device device = open_device(options);
  std::unique_ptr<Program> program;  // ends last: the source's thread copies for its steps
  const data::Split split = request.split == "train" ? data::Split::train : data::Split::test;
  refuse_other_part(parser, subject);
  if (request.split == "val") refuse_unread_val(options.data);
  Source source = open_source(options, models::find(options.model), split, data::Split::test);
  if (subject.is_run())
    require_same_kind(subject, source);
  else
    require_normalization(options, source);
  if (source.is_text() && request.confusion)
    fail<UsageError>("--confusion is for models of images: those of text have {} classes",
                     source.text->vocabulary);
  start_loader(source, options, data::Split::test, device.backend, 1);
  program = evaluation_program(options, source, device.backend, nullptr);
  pin_launching_thread(device);
  if (const std::string pinned = device.pinning.text(); !pinned.empty())
    say("pinned: {}\n", pinned);
  start_feeder(source, *program);
  note_limit(of_run, options, source);
  load_weights_for(parser, source, subject, program->store());
  const Measured measured = measure(*program, source, request, options.limit_batches);
  if (!std::isfinite(measured.score.loss()))
    say("the loss is not finite; --check-numerics names the call that causes it\n");
  note_bad_rows(measured.bad_rows, measured.score);
  print(request, subject, source, measured);
  return done;
}

Run declare_eval(Parser parser) {
  auto request = std::make_shared<EvalRequest>();
  declare_subject(parser, request->subject);
  parser.add({.name = "--split",
              .variable = &request->split,
              .help = "split to evaluate; val is another name of test, on which training evaluates",
              .check = one_of({"test", "val", "train"})});
  parser.add(
      {.name = "--logits",
       .variable = &request->logits,
       .help = "write the logits and labels of all images or tokens to this safetensors file",
       .type = "FILE"});
  parser.add({.name = "--check-numerics",
              .variable = &request->check_numerics,
              .help = check_numerics_help});
  parser.add({.name = "--confusion",
              .variable = &request->confusion,
              .help = "also print the accuracy of each class and the confusion matrix"});
  parser.add({.name = "--json", .variable = &request->json, .help = "print the result as JSON"});
  declare_run_options(parser, request->options, eval_only);
  parser.footer(
      transforms_help() +
      "\nOptions that are not given are those of the run.\n"
      "Examples:\n  warpstep eval runs/first --checkpoint best\n"
      "  warpstep eval cifar10cnn --weights mine.safetensors --data DIR --mean 0.5 0.5 0.5 \\\n"
      "    --std 0.25 0.25 0.25 --logits out.safetensors");
  return [parser, request] { return evaluate_run(parser, *request); };
}

const Command eval_command("eval", "compute loss and accuracy of saved weights", declare_eval);

}  // namespace
}  // namespace warpstep::tools

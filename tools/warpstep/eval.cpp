// warpstep eval: loss and accuracy of saved weights.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/files/safetensors.h"
#include "engine/run/program.h"
#include "engine/run/runner.h"
#include "engine/run/trainer.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/huggingface.h"
#include "tools/warpstep/logits.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"
#include "tools/warpstep/subject.h"

namespace warpstep::tools {
namespace {

// UsageError for a name that is not *.safetensors, and for --data-errors that leave images out.
void check_logits_path(const std::string& path, const RunOptions& options) {
  if (path.empty()) return;
  if (!path.ends_with(".safetensors"))
    fail<UsageError>("--logits {}: is written as safetensors, so name it X.safetensors", path);
  if (options.data_errors != "fail")
    fail<UsageError>(
        "--logits has a row for every image, but --data-errors {} may leave some out; add "
        "--data-errors fail",
        options.data_errors);
}

// A safetensors file: `logits` F32 [images, classes] and `label` I64 [images], in the data's order;
// the classes' names as a JSON array in its metadata.
void write_logits(const std::filesystem::path& path, std::span<const float> logits,
                  const data::Dataset& dataset) {
  const std::size_t classes = dataset.classes().size();
  const std::size_t rows = logits.size() / classes;
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < rows; ++i) labels.push_back(dataset.label(i));
  const std::vector<TensorToStore> tensors{
      {"label", StoredType::i64, {rows}, std::as_bytes(std::span(labels))},
      {"logits", StoredType::f32, {rows, classes}, std::as_bytes(logits)}};
  write_safetensors(
      path, tensors,
      {{"classes", nlohmann::json(dataset.classes()).dump()}, {"data", dataset.path()}});
}

struct EvalRequest {
  RunOptions options;
  SubjectRequest subject;
  std::string logits;
  std::string split = "test";
  bool check_numerics = false;
  bool json = false;
};

Subject subject_of(const Parser& parser, const EvalRequest& request) {
  Subject subject(parser, request.subject, request.options,
                  {"run", "--checkpoint", "--split", "--weights", "--allow-missing", "--logits",
                   "--check-numerics", "--no-ema", "--json"});
  RunOptions& options = subject.options;
  if (subject.is_run())
    locate_data(subject.config(), subject.checkpoint().string(), parser, options);
  else if (options.data.empty())
    fail<UsageError>("which data? Give a folder with --data: {} is a model, not a run",
                     options.model);
  return subject;
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

Score score_of(Program& program, Source& source, const EvalRequest& request,
               std::uint64_t limit_batches) {
  std::unique_ptr<Runner> runner;  // null: the usual one
  if (request.check_numerics) {
    say("{}\n", slow_check);
    runner = numerics_runner(program);
  }
  if (request.logits.empty())
    return evaluate(program, source.batches(), limit_batches, runner.get());
  LogitsKeeper keeper(source.batches(), program);
  const Score score = evaluate(program, keeper, limit_batches, runner.get());
  write_logits(request.logits, keeper.finish(), *source.dataset);
  return score;
}

void print(const EvalRequest& request, const Subject& subject, Items items, const Score& score) {
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
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("{} on the {} {} of {}: ", what, request.split, name(items), subject.options.data);
  if (items == Items::tokens)
    fmt::print("loss {}, {} on {}\n", loss_text(score.loss()), quality_text(score, items),
               grouped(score.count));
  else
    fmt::print("accuracy {} ({} of {}), loss {}\n", percent(score.accuracy()),
               grouped(score.correct), grouped(score.count), loss_text(score.loss()));
}

int evaluate_run(const Parser& parser, const EvalRequest& request) {
  Subject subject = subject_of(parser, request);
  RunOptions& options = subject.options;
  check_logits_path(request.logits, options);
  const Device device = open_device(options);
  std::unique_ptr<Program> program;  // ends last: the source's thread copies for its steps
  const data::Split split = request.split == "test" ? data::Split::test : data::Split::train;
  Source source = open_source(options, models::find(options.model), split, data::Split::test);
  if (!subject.is_run()) require_normalization(options, source);
  if (source.is_text() && !request.logits.empty())
    fail<UsageError>("--logits is for models of images: those of text have {} numbers per token",
                     source.text->vocabulary);
  start_loader(source, options, data::Split::test, device.backend, 1);
  program = evaluation_program(options, source, device.backend, nullptr);
  pin_launching_thread(device);
  if (const std::string pinned = device.pinning.text(); !pinned.empty())
    say("pinned: {}\n", pinned);
  start_feeder(source, *program);
  subject.load(program->store());
  const Score score = score_of(*program, source, request, options.limit_batches);
  if (!std::isfinite(score.loss()))
    say("the loss is not finite; --check-numerics names the call that causes it\n");
  print(request, subject, source.is_text() ? Items::tokens : Items::images, score);
  return done;
}

Run declare_eval(Parser parser) {
  auto request = std::make_shared<EvalRequest>();
  declare_subject(parser, request->subject);
  parser.add({.name = "--split",
              .variable = &request->split,
              .help = "split to evaluate",
              .check = one_of({"test", "train"})});
  parser.add({.name = "--logits",
              .variable = &request->logits,
              .help = "write the logits and labels of all images to this safetensors file",
              .type = "FILE"});
  parser.add({.name = "--check-numerics",
              .variable = &request->check_numerics,
              .help = check_numerics_help});
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

const Command eval_command("eval", "loss and accuracy of saved weights", declare_eval);

}  // namespace
}  // namespace warpstep::tools

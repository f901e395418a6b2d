// warpstep predict: the classes of images by a trained run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "data/formats/files.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/run/evaluate.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/logits.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"
#include "tools/warpstep/subject.h"
#include "tools/warpstep/text_table.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

struct PredictRequest {
  RunOptions options;
  std::string run;
  std::string checkpoint = "best";
  bool raw_weights = false;
  std::vector<std::string> files;
  int top = 1;
  bool json = false;
};

struct Guess {
  std::size_t label = 0;
  double probability = 0;
};

// The most probable `top` classes of one row of logits: its softmax, most probable first.
std::vector<Guess> guesses(std::span<const float> logits, int top) {
  const double highest = *std::ranges::max_element(logits);
  std::vector<Guess> all(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all[i] = {i, std::exp(logits[i] - highest)};
    sum += all[i].probability;
  }
  for (Guess& guess : all) guess.probability /= sum;
  std::ranges::stable_sort(all, std::ranges::greater(), &Guess::probability);
  all.resize(std::min(all.size(), static_cast<std::size_t>(top)));
  return all;
}

// What the run was trained on, from its config.json.
struct TrainedOn {
  Shape shape;
  std::vector<std::string> classes;
};

TrainedOn trained_on(const Subject& subject) try {
  const Json& data = subject.config().at("data");
  TrainedOn result{.classes = data.at("classes").get<std::vector<std::string>>()};
  const auto text = data.at("image_shape").get<std::string>();  // "32x32x3"
  const std::optional<Shape> shape = parse_image_shape(text);
  if (!shape)
    fail<DataError>("{}: its configuration is broken: images of {}", subject.checkpoint().string(),
                    text);
  result.shape = *shape;
  if (result.classes.empty())
    fail<DataError>("{}: its configuration is broken: no classes", subject.checkpoint().string());
  return result;
} catch (const Json::exception& error) {
  fail<DataError>("{}: its configuration is broken: {}", subject.checkpoint().string(),
                  error.what());
}

SubjectRequest subject_request(const Parser& parser, const PredictRequest& request) {
  SubjectRequest subject;
  subject.run = request.run;
  subject.raw_weights = request.raw_weights;
  const bool has_best = fs::exists(fs::path(request.run) / best_name);
  subject.checkpoint =
      parser.given("--checkpoint") || has_best ? request.checkpoint : std::string("last");
  return subject;
}

// Of the files that can be decoded, in their order.
struct Predicted {
  std::vector<std::string> files;
  std::vector<float> logits;  // [files, classes]
};

// "a.png: is truncated", without the place in a set of its own.
void report_broken(const std::string& message) {
  say("{}\n", printable(message.substr(0, message.rfind(" (sample "))));
}

// Leaves out the files before the first one whose header can be read, which tells the loader how
// files are decoded, and reports them.
std::vector<std::string> from_first_readable(const std::vector<std::string>& files,
                                             const TrainedOn& trained) {
  const auto dataset = data::open_files(files, trained.shape, trained.classes);
  data::Scratch scratch;
  for (std::size_t i = 0; i < files.size(); ++i) try {
      data::decoded_shape(dataset->fetch(i, scratch), files[i]);
      return {files.begin() + static_cast<std::ptrdiff_t>(i), files.end()};
    } catch (const DataError& error) {
      report_broken(error.what());
    }
  return {};
}

// A file that cannot be decoded is reported and left out.
Predicted predictions_of(const Parser& parser, Subject& subject,
                         const std::vector<std::string>& files) {
  RunOptions& options = subject.options;
  const TrainedOn trained = trained_on(subject);
  const models::Model& model = models::find(options.model);
  options.pin_cpus = options.memory = "none";  // of the training
  const Device device = open_device(options);
  Predicted predicted{.files = from_first_readable(files, trained), .logits = {}};
  if (predicted.files.empty()) return predicted;
  options.batch = std::min(options.batch, static_cast<std::int64_t>(predicted.files.size()));
  options.tier = "decoded";  // each image is used once
  options.data_errors = "mask";
  options.max_bad = 1;
  std::unique_ptr<Program> program;  // ends last: the source's thread copies for its steps
  Source source =
      source_of(options, model, data::open_files(predicted.files, trained.shape, trained.classes),
                data::Split::test);
  start_loader(source, options, data::Split::test, device.backend, 1);
  program = evaluation_program(options, source, device.backend, nullptr);
  pin_launching_thread(device);
  start_feeder(source, *program);
  load_weights_for(parser, source, subject, program->store());
  LogitsKeeper keeper(source.batches(), *program);
  evaluate(*program, keeper);
  const std::span<const float> logits = keeper.finish();
  predicted.logits.assign(logits.begin(), logits.end());
  const std::vector<data::BadSample> broken = source.loader->bad_samples();
  for (const data::BadSample& bad : broken) {
    report_broken(bad.message);
    predicted.files[bad.index].clear();
  }
  std::erase(predicted.files, std::string());
  return predicted;
}

void print_json(const std::vector<std::string>& files, const std::vector<std::string>& classes,
                const std::vector<std::vector<Guess>>& found) {
  Json all = Json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    Json top = Json::array();
    for (const Guess& guess : found[i])
      top.push_back({{"label", classes[guess.label]}, {"probability", guess.probability}});
    all.push_back({{"file", files[i]},
                   {"label", classes[found[i][0].label]},
                   {"probability", found[i][0].probability},
                   {"top", std::move(top)}});
  }
  fmt::print("{}\n", printed(all, 2));
}

void print_table(const std::vector<std::string>& files, const std::vector<std::string>& classes,
                 const std::vector<std::vector<Guess>>& found) {
  TextTable table{{{"file"}}, {}};
  for (std::size_t k = 0; k < found[0].size(); ++k) {
    table.columns.push_back({k == 0 ? "label" : fmt::format("choice {}", k + 1)});
    table.columns.push_back({"", true});
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector{files[i]});
    for (const Guess& guess : found[i]) {
      row.push_back(classes[guess.label]);
      row.push_back(percent(guess.probability));
    }
  }
  fmt::print("{}", table.text());
}

// "1 of 8 files could not be read, and 1 folder could not be listed"; "" if all are predicted.
std::string missing_text(const data::FoundFiles& found, const Predicted& predicted) {
  std::string text;
  const std::size_t files = found.images.size() + found.missing.size();
  if (const std::size_t unread = files - predicted.files.size(); unread > 0)
    text = fmt::format("{} of {} could not be read", unread, counted(files, "file"));
  if (!found.unlisted.empty())
    text += fmt::format("{}{} could not be listed", text.empty() ? "" : ", and ",
                        counted(found.unlisted.size(), "folder"));
  return text;
}

int predict(const Parser& parser, const PredictRequest& request) {
  Subject subject(parser, subject_request(parser, request), request.options,
                  {"run", "files", "--checkpoint", "--no-ema", "--top", "--json"});
  if (!subject.is_run())
    fail<UsageError>("{} is a model, not a run; give a run, which has the names of the classes",
                     request.run);
  if (models::find(subject.options.model).is_text())
    fail<UsageError>(
        "{} is a model of text, and predict is for images: `warpstep sample {} --prompt TEXT` "
        "continues a text, and `warpstep eval {}` measures its loss",
        subject.options.model, shell_word(request.run), shell_word(request.run));
  const data::FoundFiles found = data::find_images(request.files);
  if (!found.passed_over.empty())
    say("{} skipped, not .png, .jpg or .jpeg: {}\n", counted(found.passed_over.size(), "file"),
        data::first_few(found.passed_over));
  for (const std::string& folder : found.unlisted) say("{}\n", folder);
  for (const std::string& path : found.missing) say("{}: there is no such file or folder\n", path);
  const Predicted predicted = predictions_of(parser, subject, found.images);
  const std::vector<std::string> classes = trained_on(subject).classes;
  std::vector<std::vector<Guess>> all;
  for (std::size_t i = 0; i < predicted.files.size(); ++i)
    all.push_back(guesses(std::span(predicted.logits).subspan(i * classes.size(), classes.size()),
                          request.top));
  if (request.json || !all.empty())
    (request.json ? print_json : print_table)(predicted.files, classes, all);
  const std::string missing = missing_text(found, predicted);
  if (missing.empty()) return done;
  fail<DataError>("{}, see above{}", missing, all.empty() ? "" : "; the others are predicted");
}

Run declare_predict(Parser parser) {
  auto request = std::make_shared<PredictRequest>();
  parser.add({.name = "run",
              .variable = &request->run,
              .help = "run directory, or a checkpoint of one",
              .required = true});
  parser.add({.name = "files",
              .variable = &request->files,
              .help = "images, and folders of images at any depth",
              .type = "FILES",
              .required = true});
  parser.add({.name = "--checkpoint",
              .variable = &request->checkpoint,
              .help = "checkpoint of the run directory: best, last or a file"});
  parser.add({.name = "--no-ema",
              .variable = &request->raw_weights,
              .help = "use the weights themselves even if the checkpoint has their average"});
  parser.add({.name = "--top",
              .variable = &request->top,
              .help = "number of classes to print, the most probable first",
              .check = in_range(1, 65536)});
  parser.add({.name = "--eval-transforms",
              .variable = &request->options.eval_transforms,
              .help = "transforms of the images, instead of the run's",
              .check = parsed_by(check_transforms)});
  parser.add({.name = "--json", .variable = &request->json, .help = "print a JSON array"});
  declare_run_options(parser, request->options, sample_only);
  parser.footer(
      "Labels and images are those of the run: its class names, its evaluation transforms.\n"
      "A file that cannot be read or decoded is reported, and the exit code is 1; the others are "
      "predicted.\n"
      "Examples:\n  warpstep predict runs/first photo.jpg holiday/ --top 3\n"
      "  warpstep predict runs/first holiday/ --json");
  return [parser, request] { return predict(parser, *request); };
}

const Command predict_command("predict", "classify images with a trained run", declare_predict);

}  // namespace
}  // namespace warpstep::tools

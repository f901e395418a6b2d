#include "tools/warpstep/huggingface.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "data/text/tokenizer.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors_values.h"
#include "models/huggingface.h"
#include "models/zoo.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

// The model options of a checkpoint's run, as options_of_huggingface() has them; the vocabulary
// only where it is not the data's. Empty for a model with other settings.
std::vector<std::string> options_of_checkpoint(const fs::path& file, const models::Model& model) {
  const CheckpointInfo info = read_checkpoint_info(file);
  const auto trained = std::ranges::find(models::zoo(), info.model, &models::Model::name);
  if (trained == models::zoo().end() || trained->table != model.table) return {};
  const auto config = parse_json<nlohmann::ordered_json>(info.config_json);
  const nlohmann::ordered_json::json_pointer place("/options/model_option");
  std::vector<std::string> assigned, options;
  if (config.contains(place))
    for (const auto& assignment : config.at(place))
      if (assignment.is_string()) assigned.push_back(assignment.get<std::string>());
  std::istringstream words(models::resolve_settings(*trained, assigned).text());
  for (std::string word; words >> word;)
    if (!word.starts_with("dropout=") && word != "vocabulary=0") options.push_back(word);
  return options;
}

}  // namespace

void adopt_config_beside(const StartWeights& weights, RunOptions& options) {
  if (weights.file.empty() || !models::find(options.model).is_text()) return;
  const bool of_run = is_checkpoint(weights.file);
  const fs::path file =
      of_run ? fs::path(weights.file) : fs::path(weights.file).parent_path() / "config.json";
  if (!fs::exists(file)) return;
  const std::vector<std::string> theirs =
      of_run ? options_of_checkpoint(file, models::find(options.model))
             : models::options_of_huggingface(file);
  if (theirs.empty()) return;
  for (const std::string& given : options.model_option)
    for (const std::string& their : theirs)
      if (given != their && given.starts_with(their.substr(0, their.find('=') + 1)))
        fail<UsageError>(
            "--model-option {}: {} has {} for the weights in {}; leave the option out{}", given,
            file.string(), their, weights.file,
            of_run ? "" : ", or move the weights away from a config.json that is not theirs");
  say("{}: --model-option {}\n", file.string(), fmt::join(theirs, " --model-option "));
  options.model_option.insert(options.model_option.begin(), theirs.begin(), theirs.end());
}

namespace {

// warpstep weights export: a run as a folder for transformers.

struct HuggingFaceExport {
  std::string run, folder, type;
  std::string checkpoint = "last";
  bool raw_weights = false;
};

// The checkpoint to export, and how its run configured the model.
struct Trained {
  fs::path checkpoint;
  models::Settings settings;
  std::string tokenizer;  // path of tokenizer.json; empty: none
};

// The run's own copy, or beside its tokens, whose absolute path is the only one that holds in any
// folder.
std::string tokenizer_of(const fs::path& checkpoint, const Json& config) {
  const fs::path own = checkpoint.parent_path() / "tokenizer.json";
  if (fs::exists(own)) return own.string();
  const Json& data = fields::child(config, "data");
  const fs::path path = fields::text(data, "folder");
  if (path.empty() || fields::member(data, "tokenizer") == nullptr) return {};
  return ((fs::is_directory(path) ? path : path.parent_path()) / "tokenizer.json").string();
}

Trained open_trained(const HuggingFaceExport& request) {
  Trained trained;
  trained.checkpoint = fs::is_regular_file(request.run) && request.checkpoint == "last"
                           ? fs::path(request.run)
                           : chosen_checkpoint(request.run, request.checkpoint);
  const CheckpointInfo info = read_checkpoint_info(trained.checkpoint);
  const auto config = parse_json<Json>(info.config_json);
  Parser nothing_given;
  RunOptions options;
  declare_run_options(nothing_given, options, eval_only);
  const RunOptions stored =
      stored_options(config, trained.checkpoint.string(), nothing_given, options);
  const models::Model& model = models::find(info.model);  // one of a plugin is loaded by now
  if (model.table != models::gpt2_settings)
    fail<UsageError>(
        "{}: transformers has no equivalent of {}; for PyTorch: warpstep weights convert {} OUT "
        "--drop-optimizer",
        trained.checkpoint.string(), info.model, shell_word(trained.checkpoint.string()));
  trained.settings = models::resolve_settings(model, stored.model_option);
  trained.tokenizer = tokenizer_of(trained.checkpoint, config);
  return trained;
}

// A weight of a network without biases gets one of zeros: x + 0 is x.
std::vector<StoredTensor> missing_biases(const SafetensorsFile& file) {
  std::vector<StoredTensor> zeros;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::string bias = models::huggingface_bias_of(tensor.name);
    if (bias.empty() || tensor.name.starts_with(optimizer_prefix) ||
        tensor.name.starts_with(average_prefix) || file.find(bias) || tensor.shape.empty())
      continue;
    zeros.push_back({bias, StoredType::f32, {tensor.shape.back()}, 0, 0});
  }
  return zeros;
}

// The run's tokenizer; null, with a message, if it has none. Throws DataError for one with more
// tokens than the model.
std::unique_ptr<data::Tokenizer> tokenizer_for(const Trained& trained, std::int64_t vocabulary) {
  if (trained.tokenizer.empty() || !fs::exists(trained.tokenizer)) {
    say("{}\n", trained.tokenizer.empty()
                    ? "the run's data have no tokenizer.json: none is written"
                    : trained.tokenizer + ": is gone, so no tokenizer is written");
    return nullptr;
  }
  auto tokenizer = data::load_tokenizer(trained.tokenizer);
  if (tokenizer->vocabulary() > vocabulary)
    fail<DataError>(
        "{}: has {} tokens, and the model has {}: it is not the tokenizer that the run was trained "
        "with; put that one there, or remove the file to export none",
        trained.tokenizer, tokenizer->vocabulary(), vocabulary);
  return tokenizer;
}

// Writes it for transformers; returns its token for the end of a text.
std::optional<std::int64_t> export_tokenizer(const data::Tokenizer& tokenizer,
                                             const Trained& trained, const fs::path& folder) {
  data::save_tokenizer(tokenizer, (folder / "tokenizer.json").string());
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"model_max_length", trained.settings.whole("context")},
              {"clean_up_tokenization_spaces", false}};
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (end)
    for (const char* key : {"bos_token", "eos_token", "unk_token"})
      config[key] = data::end_of_text_name;
  write_atomically(folder / "tokenizer_config.json", printed(config, 2) + "\n");
  return end;
}

int export_weights(const HuggingFaceExport& request) {
  const Trained trained = open_trained(request);
  const fs::path folder = request.folder;
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    fail<UsageError>("{}: exists and is not an empty folder; name another one", folder.string());
  const SafetensorsFile file(trained.checkpoint);
  ConvertOptions options{
      .drop_optimizer = true, .use_average = !request.raw_weights, .zeros = missing_biases(file)};
  if (request.type == "f16") options.type = StoredType::f16;
  if (request.type == "bf16") options.type = StoredType::bf16;
  const std::vector<std::uint64_t>& table = file.at("wte.weight").shape;
  const auto vocabulary = table.empty() ? 0 : static_cast<std::int64_t>(table[0]);
  const auto tokenizer = tokenizer_for(trained, vocabulary);
  fs::create_directories(folder);
  // First what may fail: an export that ended there can be repeated.
  const ConvertReport report =
      convert_safetensors(trained.checkpoint, folder / "model.safetensors", options);
  const std::optional<std::int64_t> end =
      tokenizer ? export_tokenizer(*tokenizer, trained, folder) : std::nullopt;
  write_atomically(folder / "config.json",
                   models::huggingface_config(trained.settings, vocabulary, end));
  fmt::print("{}: {}, {} bytes{}{}\n", (folder / "model.safetensors").string(),
             counted(report.tensors, "tensor"), grouped(report.bytes),
             report.averaged > 0 ? ", of the average of the weights" : "",
             options.zeros.empty()
                 ? ""
                 : fmt::format(", {} of them biases of zeros", options.zeros.size()));
  if (report.infinite > 0) say("{}\n", infinite_warning(report.infinite, request.type));
  return done;
}

}  // namespace

Run declare_weights_export(Parser parser) {
  auto request = std::make_shared<HuggingFaceExport>();
  parser.add({.name = "RUN",
              .variable = &request->run,
              .help = "run directory of a language model, or a checkpoint of one",
              .required = true});
  parser.add({.name = "FOLDER",
              .variable = &request->folder,
              .help = "folder to write; it must be empty or not exist",
              .required = true});
  parser.add({.name = "--checkpoint",
              .variable = &request->checkpoint,
              .help = "checkpoint of the run directory: last, best or a file"});
  parser.add({.name = "--dtype",
              .variable = &request->type,
              .help = "type of the weights; otherwise f32",
              .check = one_of({"f32", "f16", "bf16"})});
  parser.add({.name = "--no-ema",
              .variable = &request->raw_weights,
              .help = "the weights themselves even if the checkpoint has their average"});
  parser.footer(
      "Example:\n"
      "  warpstep weights export runs/letters letters\n"
      "  python3 -c 'from transformers import *; GPT2LMHeadModel.from_pretrained(\"letters\")'");
  return [request] { return export_weights(*request); };
}

}  // namespace warpstep::tools

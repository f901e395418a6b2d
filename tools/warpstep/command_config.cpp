#include "tools/warpstep/command_config.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <istream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/toml.h"

namespace warpstep::tools {

const CLI::App& innermost(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.back());
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

namespace {

// Names that other programs have for options.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> synonyms{
    {{"learning-rate", "lr"},
     {"wd", "weight-decay"},
     {"bs", "batch"},
     {"num-workers", "workers"},
     {"max-epochs", "epochs"},
     {"num-epochs", "epochs"},
     {"max-steps", "steps"},
     {"scheduler", "lr-schedule"},
     {"lr-scheduler", "lr-schedule"},
     {"early-stopping", "patience"},
     {"augment", "transforms"},
     {"grad-clip", "clip-norm"},
     {"gradient-clip-val", "clip-norm"},
     {"accumulate-grad-batches", "accumulate"}}};

}  // namespace

std::string option_suggestion(std::string_view word, std::span<const std::string> names,
                              std::string_view prefix) {
  std::string dashed(word);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const auto& [other, own] : synonyms)
    if (dashed == other && std::find(names.begin(), names.end(), own) != names.end())
      return fmt::format("; did you mean {}{}?", prefix, own);
  return suggestion(word, names, prefix);
}

namespace {

bool begins_as_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

// A run's config.json lists its classes, thousands of them or more.
std::string read_small(std::istream& input, const std::string& file) {
  constexpr std::size_t most = std::size_t{1} << 16, most_json = std::size_t{1} << 24;
  std::string text;
  const auto read_to = [&](std::size_t bytes) {
    const std::size_t before = text.size();
    text.resize(bytes + 1);
    input.read(text.data() + before, static_cast<std::streamsize>(bytes + 1 - before));
    text.resize(before + static_cast<std::size_t>(input.gcount()));
    return text.size() > bytes;
  };
  const bool is_large = read_to(most);
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // editors of Windows write it
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  if (is_large && !begins_as_json(text))
    fail<UsageError>("{}: has more than {} bytes; a file of options is small", file, most);
  if (is_large && read_to(most_json))
    fail<UsageError>("{}: has more than {} bytes; no config.json of a run is that large", file,
                     most_json);
  return text;
}

std::vector<CLI::ConfigItem> items_of(const std::vector<TomlOption>& options) {
  std::vector<CLI::ConfigItem> items;
  for (const TomlOption& option : options) {
    items.emplace_back().name = option.key;
    items.back().inputs = option.values;
  }
  return items;
}

std::string typed(const Json& value) {
  return value.is_string() ? value.get<std::string>() : printed(value);
}

// What config.json writes for an option that has no value: it cannot be typed.
bool is_unset(const Json& value) {
  return value.is_null() || value.is_object() || (value.is_array() && value.empty()) ||
         (value.is_number() && value < 0) || typed(value).empty();
}

// Of two options, each in place of the other.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> alternatives{
    {{"epochs", "steps"}, {"batch", "global-batch"}}};

bool is_typed(const CLI::App& command, std::string_view name) {
  const CLI::Option* option = command.get_option_no_throw(fmt::format("--{}", name));
  if (option == nullptr) option = command.get_option_no_throw(std::string(name));  // the model
  return option != nullptr && !option->empty();
}

// Whether the command line has the option, or the other one of two.
bool is_replaced(const CLI::App& command, const std::string& name) {
  return std::ranges::any_of(alternatives, [&](const auto& pair) {
    return (name == pair.first || name == pair.second) &&
           (is_typed(command, pair.first) || is_typed(command, pair.second));
  });
}

// What a run resolved itself, and a new one resolves again: mean and std that were measured, on
// data that may be others now, and the learning rate of the run's model for another one.
bool is_resolved_again(const CLI::App& command, const std::string& key, const Json& options,
                       const Json& measured) {
  if (key == "lr") {
    const Json model = options.value("model", Json());
    return is_typed(command, "model") && model.is_string() &&
           options[key] == default_lr(model.get<std::string>());
  }
  return measured.is_array() && std::ranges::find(measured, Json(key)) != measured.end();
}

// The options of a run that are not at their defaults, as somebody would type them. A relative
// folder of data was the run's: its absolute path is used. `starts`: a new run.
std::vector<CLI::ConfigItem> items_of_run(const std::string& text, const std::string& file,
                                          const CLI::App& command, bool starts) {
  const Json config = parse_json<Json>(text);
  if (!config.is_object() || !config.contains("options") || !config["options"].is_object())
    fail<UsageError>(
        "{}: begins as JSON, but it is not the config.json of a run, with an object 'options'; "
        "other files of options are TOML: batch = 64",
        file);
  std::vector<CLI::ConfigItem> items;
  const Json options = as_written_now(config["options"]);
  const Json defaults = RunOptions(), measured = config.value("measured", Json());
  const bool has_global = options.value("global_batch", Json(0)) != 0;
  const bool has_steps = options.value("steps", Json(0)) != 0;
  for (const auto& [key, stored] : options.items()) {
    // Beside --steps, epochs that are not typed have no limit.
    const bool goes_without_saying =
        stored == defaults.value(key, Json()) && !(has_steps && key == "epochs");
    if (key == "out" || is_unset(stored) || goes_without_saying) continue;
    if (key == "batch" && has_global) continue;  // a rank's share
    if (starts && is_resolved_again(command, key, options, measured)) continue;
    CLI::ConfigItem item;
    item.name = key;
    std::replace(item.name.begin(), item.name.end(), '_', '-');
    Json value = stored;
    if (key == "data" && config.contains("data") && config["data"].is_object())
      value = config["data"].value("folder", stored);
    if (value.is_array())
      for (const Json& element : value) item.inputs.push_back(typed(element));
    else
      item.inputs.push_back(typed(value));
    items.push_back(std::move(item));
  }
  if (const Json weights = config.value("weights", Json());
      weights.is_object() && weights.contains("file") && weights["file"].is_string()) {
    items.emplace_back().name = "weights";  // that the run began with
    items.back().inputs.push_back(weights["file"].get<std::string>());
    const auto count = [&weights](const char* key) {
      const auto found = weights.find(key);
      return found != weights.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
    };
    if (count("loaded") < count("of")) {
      items.emplace_back().name = "allow-missing";
      items.back().inputs.emplace_back("true");
    }
  }
  return items;
}

class ConfigFile : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const CLI::App& command = innermost(app_);
    std::vector<std::string> known = option_names(command);
    for (const CLI::Option* option : command.get_options())
      if (option->get_positional()) known.push_back(option->get_single_name());
    const std::string file = name_of_file();
    const std::string text = read_small(input, file);
    const bool is_json = begins_as_json(text);
    const std::vector<TomlOption> options =
        is_json ? std::vector<TomlOption>() : read_toml(text, file);
    const CLI::Option* const resumed = command.get_option_no_throw("--resume");
    const bool starts = command.get_name() == "train" && (!resumed || resumed->empty());
    std::vector<CLI::ConfigItem> read =
        is_json ? items_of_run(text, file, command, starts) : items_of(options);
    if (is_json) merge_model_options(read);
    const auto is_known = [&](const CLI::ConfigItem& item) {
      return std::find(known.begin(), known.end(), item.name) != known.end() &&
             item.name != "config" && item.name != "help";
    };
    std::erase_if(read, [&](const CLI::ConfigItem& item) {
      return is_known(item) && is_replaced(command, item.name);
    });
    if (is_json)  // eval has fewer options than train
      std::erase_if(read, [&](const CLI::ConfigItem& item) {
        const bool is_start = item.name == "weights" || item.name == "allow-missing";
        return !is_known(item) || (is_start && !starts);
      });
    for (CLI::ConfigItem& item : read) {
      const auto line = std::ranges::find(options, item.name, &TomlOption::key);
      const std::string place =
          line == options.end() ? file : fmt::format("{}: line {}", file, line->line);
      if (item.name == "config" || item.name == "help")
        fail<UsageError>("{}: --{} belongs on the command line, not in a file", place, item.name);
      if (!is_known(item))
        fail<UsageError>("{}: unknown key {}{}", place, printable(item.name),
                         option_suggestion(item.name, known));
      for (const CLI::App* app = &command; app->get_parent(); app = app->get_parent())
        item.parents.insert(item.parents.begin(), app->get_name());
      const CLI::Option* option = command.get_option_no_throw("--" + item.name);
      if (option == nullptr) option = command.get_option_no_throw(item.name);
      if (option != nullptr && option->get_items_expected_max() == 0 && item.inputs.size() > 1)
        fail<UsageError>("{}: {} has {} values ({}), but takes 1", place, item.name,
                         item.inputs.size(), fmt::join(item.inputs, ", "));
      if (option != nullptr && option->empty() && place_of_option(*option).empty())
        given_.emplace_back(option, place);
    }
    return read;
  }

  // Where the file gives the option's value; empty: it does not.
  std::string place_of_option(const CLI::Option& option) const {
    for (const auto& [given, place] : given_)
      if (given == &option) return place;
    return {};
  }

 private:
  std::string name_of_file() const {
    const CLI::Option* const config = app_.get_config_ptr();
    return config == nullptr || config->empty() ? "--config" : config->results().back();
  }

  // CLI11 passes over the file's values of a typed option, but a run's settings that are not typed
  // hold as well. Those of another model are no settings of the typed one.
  void merge_model_options(std::vector<CLI::ConfigItem>& read) const {
    CLI::App* command = nullptr;
    for (auto given = app_.get_subcommands(); !given.empty(); given = command->get_subcommands())
      command = given.back();
    if (command == nullptr || !is_typed(*command, "model-option")) return;
    const auto own = std::ranges::find(read, "model-option", &CLI::ConfigItem::name),
               model = std::ranges::find(read, "model", &CLI::ConfigItem::name);
    if (own == read.end()) return;
    if (is_typed(*command, "model") && model != read.end() &&
        command->get_option("model")->results() != model->inputs)
      return;
    CLI::Option& typed = *command->get_option("--model-option");
    own->inputs = merged_settings(own->inputs, typed.results());
    typed.clear();
  }

  const CLI::App& app_;
  // Those that are not on the command line, with their places.
  mutable std::vector<std::pair<const CLI::Option*, std::string>> given_;
};

}  // namespace

Json as_written_now(Json options) {
  // Runs without it split by their seed.
  if (const auto seed = options.find("seed"); seed != options.end())
    if (seed->is_number_integer() && *seed >= 0 && !options.contains("val_seed"))
      options["val_seed"] = Json(*seed);
  if (const auto shard = options.find("shard_optimizer");
      shard != options.end() && shard->is_boolean())
    *shard = shard->get<bool>() ? "on" : "off";
  return options;
}

std::string place_in_file(const CLI::App& command, const CLI::Option& option) {
  const CLI::App* program = &command;
  while (program->get_parent()) program = program->get_parent();
  const auto reader = std::dynamic_pointer_cast<ConfigFile>(program->get_config_formatter());
  return reader ? reader->place_of_option(option) : std::string();
}

std::shared_ptr<CLI::Config> config_reader(const CLI::App& program) {
  return std::make_shared<ConfigFile>(program);
}

}  // namespace warpstep::tools

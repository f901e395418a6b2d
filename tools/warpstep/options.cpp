#include "tools/warpstep/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "data/io/file.h"
#include "data/transforms/recipe.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "tools/warpstep/command_config.h"
#include "tools/warpstep/option_table.h"

namespace warpstep::tools {
namespace {

void for_each_row(const std::function<void(const OptionRow&)>& visit) {
  for (const OptionGroup& group : option_table())
    for (const OptionRow& row : group.rows) visit(row);
}

// A flag that a run has can be taken back: --nesterov by --no-nesterov, --no-graph by --graph.
std::string negation_of(const std::string& flag) {
  return "--" + (flag.starts_with("--no-") ? flag.substr(5) : "no-" + flag.substr(2));
}

// "keep_best": the name in config.json.
std::string key_of(const OptionRow& row) {
  std::string key = row.option.name;
  if (key.starts_with("--")) key.erase(0, 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

}  // namespace

void declare_run_options(const Parser& parser, RunOptions& options, Commands command) {
  for (const OptionGroup& group : option_table())
    for (const OptionRow& row : group.rows) {
      if ((row.commands & command) == 0) continue;
      Option option = row.option;
      option.group = group.heading;
      if (std::holds_alternative<bool RunOptions::*>(row.field))
        option.name += ",!" + negation_of(option.name);
      std::visit([&](auto field) { option.variable = &(options.*field); }, row.field);
      parser.add(option);
    }
}

std::string transforms_help() {
  std::string text = "Transforms:\n";
  for (const data::TransformKind* kind : data::TransformKind::all())
    text += help_row(std::string(kind->usage), std::string(kind->what));
  return text;
}

std::vector<OptionName> option_names() {
  std::vector<OptionName> names;
  for_each_row([&](const OptionRow& row) { names.push_back({row.option.name, key_of(row)}); });
  return names;
}

std::vector<OptionChange> changes(const RunOptions& before, const RunOptions& now) {
  std::vector<OptionChange> found;
  for_each_row([&](const OptionRow& row) {
    const auto text = [&row](const RunOptions& options) {
      const Json value = std::visit([&](auto field) { return Json(options.*field); }, row.field);
      if (value.is_string()) return value.get<std::string>();
      if (value.is_array()) {
        std::string words;
        for (const Json& element : value)
          words += (words.empty() ? "" : " ") +
                   (element.is_string() ? element.get<std::string>() : printed(element));
        return words.empty() ? "none" : words;
      }
      return value.is_number() && value.get<double>() < 0 ? "none" : printed(value);
    };
    const auto meaning = [&](const RunOptions& options) {
      return row.meaning ? row.meaning(options) : text(options);
    };
    if (meaning(before) != meaning(now))
      found.push_back({fmt::format("{} {}", row.option.name, text(now)), text(before),
                       row.option.name, row.resume});
  });
  return found;
}

std::vector<std::string> as_typed(const Parser& parser, const RunOptions& typed) {
  std::vector<std::string> words;
  for_each_row([&](const OptionRow& row) {
    const std::string& name = row.option.name;
    if (!parser.has(name) || !parser.given(name)) return;
    const Json value = std::visit([&](auto field) { return Json(typed.*field); }, row.field);
    if (value.is_boolean()) {
      words.push_back(value.get<bool>() ? name : negation_of(name));
      return;
    }
    std::vector<std::string> values;
    for (const Json& one : value.is_array() ? value : Json::array({value}))
      values.push_back(one.is_string() ? one.get<std::string>() : printed(one));
    if (row.option.by_comma) values = {fmt::format("{}", fmt::join(values, ","))};
    if (!row.option.repeats && name.starts_with("--")) words.push_back(name);
    for (const std::string& one : values) {
      if (row.option.repeats) words.push_back(name);
      words.push_back(one);
    }
  });
  return words;
}

// config.json

void to_json(Json& json, const RunOptions& options) {
  json = Json::object();
  for_each_row([&](const OptionRow& row) {
    std::visit([&](auto field) { json[key_of(row)] = options.*field; }, row.field);
  });
}

namespace {

template <class Value>
const char* kind_of(const Value&) {
  if constexpr (std::is_same_v<Value, bool>) return "true or false";
  if constexpr (std::is_same_v<Value, std::string>) return "a text in quotes";
  if constexpr (std::is_integral_v<Value>) return "a whole number";
  if constexpr (std::is_floating_point_v<Value>) return "a number";
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "a list of texts";
  return "a list of numbers";
}

template <class Value>
bool is_of_kind(const Json& json, const Value&) {
  if constexpr (std::is_same_v<Value, bool>) return json.is_boolean();
  if constexpr (std::is_same_v<Value, std::string>) return json.is_string();
  if constexpr (std::is_integral_v<Value>) return json.is_number_integer();
  return json.is_number();
}

template <class Element>
bool is_of_kind(const Json& json, const std::vector<Element>&) {
  return json.is_array() && std::ranges::all_of(json, [](const Json& element) {
           return is_of_kind(element, Element());
         });
}

// Why the command line would refuse a stored value; empty if it would not.
std::string refusal_of(const std::string& option, const Json& value) {
  struct CommandLine {
    Parser parser;
    RunOptions options;
    CommandLine() { declare_run_options(parser, options, train_only); }
  };
  static CommandLine line;  // declaring takes milliseconds
  if (value.is_boolean()) return {};
  if (value.empty()) return fmt::format("{}: an empty list", option);
  const auto typed = [](const Json& json) {
    return json.is_string() ? json.get<std::string>() : printed(json);
  };
  std::vector<std::string> texts;
  if (value.is_array())
    for (const Json& element : value) texts.push_back(typed(element));
  else
    texts.push_back(typed(value));
  return line.parser.problem(option, texts);
}

[[noreturn]] void refuse_stored(const std::string& file, const std::string& key,
                                const std::string& why, const std::string& fix) {
  fail<DataError>("{}: the value of option '{}' in its configuration is invalid: {}; {}", file, key,
                  why, fix);
}

void read_stored(const OptionRow& row, const Json& value, const std::string& file,
                 const Parser& parser, const RunOptions& typed, RunOptions& options) {
  static const RunOptions defaults;
  const std::string name = row.option.name;
  std::visit(
      [&](auto field) {
        std::string wrong;
        if (name == "--plugin" &&
            parser.given(name)) {  // the run's own would be loaded to check it
          options.*field = typed.*field;
          return;
        }
        if (!is_of_kind(value, options.*field))
          wrong = fmt::format("it is {}, not {}", brief(value), kind_of(options.*field));
        else if (value != Json(defaults.*field))
          wrong = refusal_of(name, value);
        if (wrong.empty())
          value.get_to(options.*field);
        else if (parser.given(name))
          options.*field = typed.*field;
        else
          refuse_stored(file, key_of(row), wrong,
                        parser.has(name) && row.resume != Resume::refused
                            ? fmt::format("give {} on the command line, or use another checkpoint",
                                          name == "model" ? "the model" : name)
                            : "use another checkpoint");
      },
      row.field);
}

// The channels of the run's images: 3 for the shape "32x32x3"; 0 if unknown.
std::size_t channels_of(const Json& config) {
  const std::string text = fields::text(fields::child(config, "data"), "image_shape");
  const std::size_t at = text.rfind('x');
  std::size_t channels = 0;
  if (at != std::string::npos)
    std::from_chars(text.data() + at + 1, text.data() + text.size(), channels);
  return channels;
}

// Whether a recipe of the run uses mean and std: elsewhere they may be anything.
bool normalizes(const RunOptions& options) {
  const std::string& eval = options.eval_transforms;
  return data::Recipe(training_transforms(options)).normalizes() ||
         (eval != "auto" && eval != "none" && data::Recipe(eval).normalizes());
}

// --mean and --std belong together, and to the images of the run.
void check_normalization(const Json& config, const std::string& file, const Parser& parser,
                         const RunOptions& typed, const RunOptions& options) {
  if (!options.model.empty() && !normalizes(options)) return;
  const auto& mean = parser.given("--mean") ? typed.mean : options.mean;
  const auto& std = parser.given("--std") ? typed.std : options.std;
  const char* fix = "give --mean and --std on the command line, or use another checkpoint";
  const std::size_t means = mean.size(), stds = std.size();
  if (means != stds)
    refuse_stored(file, "std",
                  fmt::format("'mean' has length {} and 'std' has length {}", means, stds), fix);
  if (const std::size_t channels = channels_of(config);
      means > 0 && channels > 0 && means != channels)
    refuse_stored(file, "mean",
                  fmt::format("its length is {}, but the images of the run have {} channels", means,
                              channels),
                  fix);
}

}  // namespace

RunOptions stored_options(const Json& config, const std::string& file, const Parser& parser,
                          const RunOptions& typed) {
  if (!config.is_object() || !config.contains("options") || !config.at("options").is_object())
    fail<DataError>("{}: its configuration is broken: it has no object 'options'", file);
  const Json stored = as_written_now(config.at("options"));
  RunOptions options;
  for_each_row([&](const OptionRow& row) {
    if (const auto found = stored.find(key_of(row)); found != stored.end())
      read_stored(row, *found, file, parser, typed, options);
  });
  check_normalization(config, file, parser, typed, options);
  return options;
}

std::vector<std::string> merged_settings(std::vector<std::string> stored,
                                         const std::vector<std::string>& typed) {
  const auto name = [](const std::string& assignment) {
    return assignment.substr(0, assignment.find('='));
  };
  std::erase_if(stored, [&](const std::string& own) {
    return std::ranges::any_of(typed,
                               [&](const std::string& other) { return name(own) == name(other); });
  });
  stored.insert(stored.end(), typed.begin(), typed.end());
  return stored;
}

RunOptions merged(const Parser& parser, const RunOptions& typed, RunOptions stored,
                  std::initializer_list<std::string_view> handled) {
  const std::vector<std::string> settings = stored.model_option;
  for (const std::string& name : parser.given()) {
    bool found = std::ranges::find(handled, name) != handled.end();
    for_each_row([&](const OptionRow& row) {
      if (row.option.name != name) return;
      if (row.resume == Resume::refused)
        fail<UsageError>("{} does not go with --resume: the run continues in its own directory",
                         name);
      std::visit([&](auto field) { stored.*field = typed.*field; }, row.field);
      found = true;
    });
    if (!found) fail<UsageError>("{} cannot change the options of an earlier run", name);
  }
  if (parser.given("--model-option"))
    stored.model_option = merged_settings(settings, typed.model_option);
  return stored;
}

void locate_data(const Json& config, const std::string& file, const Parser& parser,
                 RunOptions& options) {
  if (parser.given("--data")) return;
  const std::string folder = fields::text(fields::child(config, "data"), "folder");
  if (data::is_folder(folder) || data::exists(folder)) {  // tokens may be in one file
    if (data_folder(options) != folder) options.data = folder;
  } else if (!folder.empty() || (!options.data.empty() && !data::exists(options.data))) {
    fail<DataError>(
        "{}: there is no such folder, but {} was trained on the data in it; name their place now: "
        "--data FOLDER",
        folder.empty() ? options.data : folder, file);
  }
}

std::string data_folder(const RunOptions& options) {
  if (options.data.empty()) return {};
  return std::filesystem::absolute(options.data).lexically_normal().string();
}

void settle_length(const Parser& parser, bool resumed, RunOptions& options) {
  const bool steps = parser.given("--steps"), epochs = parser.given("--epochs");
  if (steps && !epochs && options.steps > 0) options.epochs = 0;
  if (resumed && epochs && !steps) options.steps = 0;
}

void settle_final_rate(const Parser& parser, RunOptions& options) {
  if (parser.given("--lr-final")) return;
  if (options.lr_schedule != "cosine") options.lr_final = 0;
  if (options.lr >= 0 && options.lr_final > options.lr)
    fail<UsageError>(
        "--lr-final {} is above --lr {}: it is the run's own; give another --lr-final, of at most "
        "{}, with --lr",
        options.lr_final, options.lr, options.lr);
}

std::uint64_t steps_of_epoch(const RunOptions& options, std::uint64_t batches) {
  return options.limit_batches > 0 ? std::min(options.limit_batches, batches) : batches;
}

std::uint64_t total_steps(const RunOptions& options, std::uint64_t steps_of_epoch,
                          const Progress& at) {
  const std::uint64_t end_of_run = options.epochs * steps_of_epoch,
                      next = at.next.epoch * steps_of_epoch + at.next.step;
  const std::uint64_t by_epochs = at.step + (end_of_run - std::min(end_of_run, next));
  if (options.steps == 0) return by_epochs;
  return options.epochs == 0 ? options.steps : std::min(by_epochs, options.steps);
}

}  // namespace warpstep::tools

#include "tools/warpstep/stored_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "models/zoo.h"
#include "profiler/recorder/recorder.h"
#include "tools/warpstep/run_fields.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;

// "no-fuse" of the field no_fuse; the model is an argument without dashes.
std::string option_name(std::string field) {
  if (field == "model") return field;
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

bool is_given(const CLI::App& app, const std::string& option) {
  const CLI::Option* declared = app.get_option_no_throw(option);
  return declared && declared->count() > 0;
}

template <class Field>
const char* kind_of(const Field&) {
  if constexpr (std::is_same_v<Field, bool>) return "true or false";
  if constexpr (std::is_same_v<Field, std::string>) return "a text in quotes";
  if constexpr (std::is_integral_v<Field>) return "a whole number";
  if constexpr (std::is_floating_point_v<Field>) return "a number";
  if constexpr (std::is_same_v<Field, std::vector<std::string>>) return "a list of texts";
  return "a list of numbers";
}

template <class Field>
bool is_of_kind(const Json& json, const Field&) {
  if constexpr (std::is_same_v<Field, bool>) return json.is_boolean();
  if constexpr (std::is_same_v<Field, std::string>) return json.is_string();
  if constexpr (std::is_integral_v<Field>) return json.is_number_integer();
  return json.is_number();
}

template <class Element>
bool is_of_kind(const Json& json, const std::vector<Element>&) {
  return json.is_array() && std::ranges::all_of(json, [](const Json& element) {
           return is_of_kind(element, Element());
         });
}

// As one types it.
std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

// What the command line says of the value; empty if it takes it.
std::string refusal(CLI::Option& option, const Json& value) try {
  if (value.is_boolean()) return {};
  option.clear();
  if (value.empty()) return fmt::format("{}: an empty list", option.get_name());
  if (value.is_array())
    for (const Json& element : value) option.add_result(text_of(element));
  else
    option.add_result(text_of(value));
  option.run_callback();
  return {};
} catch (const CLI::ParseError& error) {
  return error.what();
}

// The same of what the command line leaves to others.
std::string later_refusal(const std::string& option, const Json& value) try {
  if (option == "model") models::find(value.get<std::string>());
  if (option == "--precision") parse_precision(value.get<std::string>());
  if (option == "--profile-schedule") profiler::parse_schedule(value.get<std::string>());
  return {};
} catch (const UsageError& error) {
  return error.what();
}

// The command line's parser, to ask what it takes.
struct Parser {
  CLI::App app;
  RunOptions options;
  Parser() { declare_run_options(app, options); }
};

}  // namespace

RunOptions stored_options(const Json& config, const std::string& file, const CLI::App& app,
                          const RunOptions& typed) {
  if (!config.is_object() || !config.contains("options") || !config.at("options").is_object())
    fail<DataError>("{}: its configuration is broken: it has no object 'options'", file);
  const Json& stored = config.at("options");
  const RunOptions defaults;
  RunOptions options;
  static Parser parser;  // takes milliseconds to make
  visit_fields([&](const char* key, auto member) {
    const auto found = stored.find(key);
    if (found == stored.end()) return;
    const std::string option = option_name(key);
    std::string wrong;
    if (!is_of_kind(*found, options.*member))
      wrong = fmt::format("it is {}, where {} belongs", brief(*found), kind_of(options.*member));
    else if (*found != Json(defaults.*member))
      wrong = refusal(*parser.app.get_option(option), *found) + later_refusal(option, *found);
    if (wrong.empty()) {
      found->get_to(options.*member);
    } else if (is_given(app, option)) {
      options.*member = typed.*member;
    } else {
      fail<DataError>(
          "{}: its configuration has an option '{}' that cannot be used: {}; {}", file, key, wrong,
          app.get_option_no_throw(option) && option != "--out"  // which --resume does not take
              ? fmt::format("give {} on the command line, or take another checkpoint", option)
              : "take another checkpoint");
    }
  });
  return options;
}

void locate_data(const Json& config, const std::string& file, const CLI::App& app,
                 RunOptions& options) {
  if (is_given(app, "--data")) return;
  std::string folder;
  if (const auto data = config.find("data"); data != config.end() && data->is_object())
    if (const auto found = data->find("folder"); found != data->end() && found->is_string())
      folder = found->get<std::string>();
  if (data::is_folder(folder)) {
    if (data_folder(options) != folder) options.data = folder;
  } else if (!folder.empty() || (!options.data.empty() && !data::exists(options.data))) {
    fail<DataError>(
        "{}: there is no such folder, where {} has its data from; say where they are now: --data "
        "FOLDER",
        folder.empty() ? options.data : folder, file);
  }
}

std::string data_folder(const RunOptions& options) {
  if (options.data.empty()) return {};
  return std::filesystem::absolute(options.data).lexically_normal().string();
}

RunOptions overridden(const CLI::App& app, const RunOptions& typed, RunOptions stored) {
  visit_fields([&](const char* key, auto member) {
    if (is_given(app, option_name(key))) stored.*member = typed.*member;
  });
  return stored;
}

}  // namespace warpstep::tools

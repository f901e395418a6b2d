#include "tools/warpstep/command_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "engine/core/text.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/command_config.h"

namespace warpstep::tools {

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

namespace {

// An argument without its option: the folder of the data.
std::string meant_for_data(const CLI::App& app, const std::string& word) {
  const CLI::Option* data = app.get_option_no_throw("--data");
  std::error_code error;
  if (data == nullptr || data->count() > 0 || !std::filesystem::exists(word, error)) return {};
  return fmt::format("; did you mean --data {}?", shell_word(word));
}

// "--model-option layers=6 width=384"
std::string meant_for_setting(const CLI::App& app, const std::string& word) {
  if (word.find('=') == word.npos) return {};
  for (const CLI::Option* option : app.get_options())
    if (option->get_type_name() == "NAME=VALUE")
      return fmt::format("; did you mean {} {}?", option->get_name(), word);
  return {};
}

// The option that CLI11's text begins with: "--lr: 1 required X missing", "Could not convert:
// --nesterov = 7", "--data is required".
const CLI::Option* option_of(const CLI::App& command, std::string_view text) {
  constexpr std::string_view conversion = "Could not convert: ";
  if (text.starts_with(conversion)) text.remove_prefix(conversion.size());
  const std::string name(text.substr(0, text.find_first_of(": ")));
  return name.empty() ? nullptr : command.get_option_no_throw(name);
}

bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0 || option.get_expected_min() == 0;
}

std::string values_text(const CLI::Option& option) {
  return fmt::format("{}", fmt::join(option.results(), ", "));
}

std::string count_problem(const CLI::Option& option, const std::string& name, bool in_file) {
  const std::size_t given = option.count();
  const auto most = static_cast<std::size_t>(option.get_items_expected_max()),
             least = static_cast<std::size_t>(option.get_items_expected_min());
  if (given == 0)
    return fmt::format("{} needs a value, {} {}: {}", name, name, option.get_type_name(),
                       option.get_description());
  if (given > most && most == 1 && !in_file)
    return fmt::format("{} is given {} times ({}); give it once", name, given, values_text(option));
  const std::string takes =
      fmt::format("{} has {} ({}), but takes {}", name, counted(given, "value"),
                  values_text(option), given > most ? most : least);
  return option.get_positional() ? fmt::format("{}: {}", takes, option.get_description()) : takes;
}

std::string conversion_problem(const CLI::Option& option, const std::string& name, bool in_file) {
  const std::string value = option.count() > 0 ? option.results().back() : "";
  if (is_flag(option) && !in_file)
    return fmt::format("{}={}: it takes no value; write {}, or leave it out", name, value, name);
  if (is_flag(option)) return fmt::format("{}: {}", name, flag_problem(value));
  const std::string type = option.get_type_name();
  return fmt::format("{}: '{}' is not {}", name, value,
                     type.starts_with("N")   ? "a whole number"
                     : type.starts_with("X") ? "a number"
                                             : fmt::format("a {}", type));
}

std::string option_problem(const CLI::Option& option, const CLI::ParseError& error, bool in_file) {
  const bool positional = option.get_positional();
  const std::string full = positional ? option.get_single_name() : option.get_name();
  const std::string name = in_file ? full.substr(full.find_first_not_of('-')) : full;
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return count_problem(option, name, in_file);
  if (dynamic_cast<const CLI::ConversionError*>(&error))
    return conversion_problem(option, name, in_file);
  if (dynamic_cast<const CLI::RequiredError*>(&error))
    return fmt::format("{} is missing: {}", name, option.get_description());
  const std::string text = error.what();
  const std::string problem = text.substr(std::min(text.find(": ") + 2, text.size()));
  if (is_flag(option) && !in_file && option.count() > 0)
    return conversion_problem(option, name, in_file);
  return fmt::format("{}: {}", name, problem);
}

// An option of several values also takes the word that follows them: "--mean 0.5 0.5 0.5 mlp".
std::string taken_positional(const CLI::App& command, const CLI::Option& option,
                             const std::string& problem) {
  if (option.get_items_expected_max() < 2 || option.count() < 2) return {};
  const std::string& last = option.results().back();
  if (problem.find(fmt::format("'{}'", last)) == problem.npos) return {};
  for (const CLI::Option* other : command.get_options())
    if (other->get_positional() && other->count() == 0)
      return fmt::format("; if it is the {}, write it before {}: {} {} {} ...",
                         other->get_single_name(), option.get_name(), command.get_name(), last,
                         option.get_name());
  return {};
}

}  // namespace

std::string unexpected_argument(const CLI::App& command) {
  std::vector<std::string> rest = command.remaining();
  if (rest.empty()) return {};
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && word != "--";
  });
  if (option != rest.end()) {
    const std::string written = option->substr(0, option->find('='));
    const std::string word =
        written.substr(std::min(written.find_first_not_of('-'), written.size()));
    return fmt::format("unknown option {}{}", written,
                       option_suggestion(word, option_names(command), "--"));
  }
  const std::vector<std::string> subcommands = subcommand_names(command);
  if (!subcommands.empty()) {
    const std::string near = suggestion(rest[0], subcommands);
    return fmt::format(
        "unknown command {}{}", rest[0],
        near.empty() ? fmt::format("; there are {}", fmt::join(subcommands, ", ")) : near);
  }
  return fmt::format("unexpected argument {}{}{}", rest[0], meant_for_data(command, rest[0]),
                     meant_for_setting(command, rest[0]));
}

std::string readable(const CLI::App& command, const CLI::ParseError& error) {
  const CLI::Option* const option = option_of(command, error.what());
  if (option == nullptr) return error.what();
  const std::string place = place_in_file(command, *option);
  const std::string problem = option_problem(*option, error, !place.empty());
  return place.empty() ? problem + taken_positional(command, *option, problem)
                       : fmt::format("{}: {}", place, problem);
}

std::string flag_problem(const std::string& text) {
  constexpr std::array<std::string_view, 8> words{"true", "false", "on", "off",
                                                  "yes",  "no",    "1",  "0"};
  if (std::ranges::find(words, text) != words.end()) return {};
  return fmt::format("'{}' is neither true nor false", text);
}

}  // namespace warpstep::tools

#include "tools/warpstep/command_list.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>

namespace warpstep::tools {
namespace {

ListedOption listed(const CLI::Option& option) {
  ListedOption result{.value = option.get_type_name(),
                      .help = option.get_description(),
                      .group = option.get_group(),
                      .positional = option.get_positional(),
                      .repeats = option.get_items_expected_max() > 1};
  if (result.positional) {
    result.names = {option.get_single_name()};
    return result;
  }
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  if (option.get_items_expected_max() == 0 || option.get_expected_max() == 0) result.value.clear();
  return result;
}

ListedCommand listed(const CLI::App& app, const std::string& parents) {
  ListedCommand result{.name = parents + app.get_name(),
                       .summary = app.get_description(),
                       .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) result.options.push_back(listed(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    result.commands.push_back(listed(*command, result.name + " "));
  return result;
}

}  // namespace

std::vector<std::string> ListedOption::choices() const {
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos) return words;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('|', begin), value.size());
    const std::string word = value.substr(begin, end - begin);
    // N of "N|auto" stands for a number.
    if (std::ranges::none_of(word, [](unsigned char c) { return std::isupper(c); }))
      words.push_back(word);
    begin = end + 1;
  }
  return words;
}

ListedCommand list_commands(const Parser& parser) {
  const CLI::App* app = &parser.app();
  while (app->get_parent()) app = app->get_parent();
  return listed(*app, "");
}

}  // namespace warpstep::tools

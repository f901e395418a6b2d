// --config FILE: options from a file, and what command.cpp shares with its reader.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/warpstep/json.h"

namespace CLI {
class App;
class Config;
class Option;
}  // namespace CLI

namespace warpstep::tools {

// The innermost subcommand that was given.
const CLI::App& innermost(const CLI::App& app);
// Long names of the options, without dashes.
std::vector<std::string> option_names(const CLI::App& app);

// The object 'options' of a run that any version wrote, as this version writes it: what was
// renamed, changed its type or did not exist yet means what it meant then. Not checked.
Json as_written_now(Json options);

// Reads TOML for the subcommand that was given: an unknown key is an error, not an extra. Also
// reads a run's config.json: the options in it that the subcommand has, but --out, whose folder is
// that run's. UsageError names the file, the line of TOML and what is wrong.
std::shared_ptr<CLI::Config> config_reader(const CLI::App& program);
// Where a --config file gives the option's value: "run.toml: line 3"; empty: the command line does.
std::string place_in_file(const CLI::App& command, const CLI::Option& option);

}  // namespace warpstep::tools

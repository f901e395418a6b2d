// What is wrong with a command line, in words: CLI11's errors name neither the value nor the fix.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace warpstep::tools {

std::vector<std::string> subcommand_names(const CLI::App& app);

// Of an argument that the command does not know, with the nearest that it does; empty: there is
// none.
std::string unexpected_argument(const CLI::App& command);

// What `error` is about, the value, and what to write instead.
std::string readable(const CLI::App& command, const CLI::ParseError& error);

// What is wrong with a flag's value; empty: it is true or false.
std::string flag_problem(const std::string& text);

}  // namespace warpstep::tools

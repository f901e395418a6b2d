// The subcommands of the program and their options as data: for completion and man pages.
#pragma once

#include <string>
#include <vector>

#include "tools/warpstep/command.h"

namespace warpstep::tools {

struct ListedOption {
  std::vector<std::string> names;  // "--batch", "-o"; of a positional one its name
  std::string value;               // as in help: "N", "FILE", "cpu|cuda"; empty: a flag
  std::string help;
  std::string group;
  bool positional = false;
  bool repeats = false;  // takes several values, or may be given several times

  // The words of a value such as cpu|cuda; empty where it is anything else.
  std::vector<std::string> choices() const;
};

struct ListedCommand {
  std::string name;  // "warpstep data make"
  std::string summary;
  std::string footer;
  std::vector<ListedOption> options;  // --help included
  std::vector<ListedCommand> commands;

  std::string own_name() const { return name.substr(name.rfind(' ') + 1); }
};

// The whole program that the parser's subcommand belongs to. Call it when all subcommands are
// declared: in a Run.
ListedCommand list_commands(const Parser& parser);

}  // namespace warpstep::tools

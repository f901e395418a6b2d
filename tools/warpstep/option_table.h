// The table of the options of a run: a row per option with its name, type, check, help, field,
// subcommands and rule for --resume. Only options.cpp and its test read it.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"

namespace warpstep::tools {

// The member that holds the option's value.
using Field =
    std::variant<bool RunOptions::*, int RunOptions::*, std::int64_t RunOptions::*,
                 std::uint64_t RunOptions::*, double RunOptions::*, std::string RunOptions::*,
                 std::vector<double> RunOptions::*, std::vector<std::string> RunOptions::*>;

struct OptionRow {
  Option option;  // without group and variable
  Field field;
  unsigned commands;  // of Commands
  Resume resume = Resume::always;
  // What the option means, where different texts can mean the same.
  std::function<std::string(const RunOptions&)> meaning = {};
};

struct OptionGroup {
  const char* heading;  // in help
  std::vector<OptionRow> rows;
};

// In the order of help and of config.json.
const std::vector<OptionGroup>& option_table();

}  // namespace warpstep::tools

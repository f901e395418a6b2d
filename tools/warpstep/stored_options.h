// The options of a run, read back from its configuration.
#pragma once

#include <string>

#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

// The options of `config`, the configuration in a checkpoint. Each is checked as if it had been
// typed: by the checks that the command line has for it. `typed` are the options that `app` was
// given now; one that was given stands in for a stored one that cannot be used. DataError names
// `file`, the option and what to do.
RunOptions stored_options(const nlohmann::ordered_json& config, const std::string& file,
                          const CLI::App& app, const RunOptions& typed);

// Where the data of that run are: in the folder that it had, or where --data says. A relative path
// meant another folder if the run was started from another one. DataError names --data.
void locate_data(const nlohmann::ordered_json& config, const std::string& file, const CLI::App& app,
                 RunOptions& options);

// What locate_data() goes by: the absolute path of --data.
std::string data_folder(const RunOptions& options);

// `stored`, and on top of them what `app` was given.
RunOptions overridden(const CLI::App& app, const RunOptions& typed, RunOptions stored);

}  // namespace warpstep::tools

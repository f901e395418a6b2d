// The subcommands of `warpstep data`, a file each.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/formats/dataset.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {

Run declare_data_info(CLI::App& app);
Run declare_data_verify(CLI::App& app);
Run declare_data_pack(CLI::App& app);

// The splits that `spec` has, at least one. A split that is there but broken throws.
std::vector<std::pair<data::Split, std::unique_ptr<data::Dataset>>> open_splits(
    const std::string& spec);

}  // namespace warpstep::tools

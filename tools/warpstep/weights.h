// The subcommands of `warpstep weights`, a file each.
#pragma once

#include "tools/warpstep/command.h"

namespace warpstep::tools {

Run declare_weights_info(CLI::App& app);
Run declare_weights_convert(CLI::App& app);

}  // namespace warpstep::tools

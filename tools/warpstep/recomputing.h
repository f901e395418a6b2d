// --recompute: what a run is told, and what it tells.
#pragma once

#include <string>
#include <vector>

#include "engine/run/program.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

void declare_recompute(CLI::App& app, RunOptions& options);

// What it gives and costs: "recompute layer1: arena 812.3 -> 640.1 MiB, 4.2 % more FLOPs".
// `without`: the graph of the same step compiled without it.
std::string recompute_line(const std::vector<std::string>& scopes, Graph without,
                           const Program& program);

}  // namespace warpstep::tools

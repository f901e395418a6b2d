#include "tools/warpstep/recomputing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "engine/run/step_memory.h"

namespace warpstep::tools {

void declare_recompute(CLI::App& app, RunOptions& o) {
  app.add_option("--recompute", o.recompute,
                 "drop what the layers of a scope (layer1, layer1.0) keep for their gradients, and "
                 "make it again: less memory, more work; may be repeated");
}

std::string recompute_line(const std::vector<std::string>& scopes, Graph without,
                           const Program& program) {
  const auto flops = [](const Graph& graph) {
    double sum = 0;
    for (const Node& node : graph.nodes) sum += graph.cost(node).flops;
    return sum;
  };
  constexpr double mib = 1 << 20;
  const double before = flops(without);
  const StepMemory plain = plan_step(std::move(without), program.backend());
  return fmt::format("recompute {}: arena {:.1f} -> {:.1f} MiB, {:.1f} % more FLOPs",
                     fmt::join(scopes, ", "), static_cast<double>(plain.plan.arena_bytes) / mib,
                     static_cast<double>(program.plan().arena_bytes) / mib,
                     before > 0 ? 100 * (flops(program.graph()) / before - 1) : 0);
}

}  // namespace warpstep::tools

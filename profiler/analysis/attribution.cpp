#include "profiler/analysis/attribution.h"

namespace warpstep::profiler::analysis {

Attribution::Attribution(const Session& session) : launches_(session) {
  for (const GraphNode& node : session.graph_nodes) by_node_[node.node] = node.call;
}

std::optional<std::uint64_t> Attribution::call(const Activity& activity) const {
  if (activity.external != 0) return activity.external - 1;
  if (activity.graph_node != 0) {
    const auto found = by_node_.find(activity.graph_node);
    if (found != by_node_.end()) return found->second;
  }
  const Activity* launch = launches_.find(activity.correlation);
  if (launch != nullptr && launch->external != 0) return launch->external - 1;
  return std::nullopt;
}

}  // namespace warpstep::profiler::analysis

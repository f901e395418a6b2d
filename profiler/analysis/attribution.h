// Which call of the program an activity of a device belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler::analysis {

class Attribution {
 public:
  explicit Attribution(const Session& session);

  // By its own mark; else by the node of a graph, whose kernels share one launch; else by the mark
  // of its launch. Empty: of no call.
  std::optional<std::uint64_t> call(const Activity& activity) const;

 private:
  Launches launches_;
  std::unordered_map<std::uint64_t, std::uint64_t> by_node_;
};

}  // namespace warpstep::profiler::analysis

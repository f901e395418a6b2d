// The walk back from a step's end along what it waited for.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/host_timeline.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler::analysis {

class PathWalk {
 public:
  explicit PathWalk(const Session& session);

  // First to last; they tile the interval exactly.
  std::vector<PathEdge> edges(const Interval& step) const;

 private:
  struct Walk;  // of one step

  void on_host(Walk& walk) const;
  void on_device(Walk& walk) const;
  const Activity* running_or_last(std::uint64_t at_ns) const;
  const Activity* last_ended(std::uint64_t at_ns) const;
  const Activity* before_on_stream(const Activity& activity) const;

  const Session& session_;
  std::vector<HostSlice> host_;
  Launches launches_;
  std::vector<const Activity*> by_start_;  // work of devices, none of it empty
  std::vector<const Activity*> latest_;    // of those up to here, the one that ends last
  std::vector<const Activity*> by_end_;
  std::unordered_map<const Activity*, const Activity*> previous_;  // on the same stream
};

}  // namespace warpstep::profiler::analysis

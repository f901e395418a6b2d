// The chain of waits that determines the length of a step.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct PathEdge {
  std::uint64_t begin_ns = 0, end_ns = 0;
  // "kernel", "copy": the device (on a host: calls, copies) works; "launch": from a launch's begin
  // to what it launched, or the driver; "data", "sync": the trainer waits for the loader, for the
  // device; "cpu": it does something named; "idle": nothing that was recorded happens. Only
  // shares have "core wait", which has no times: the thread was ready to run and had no core.
  std::string bound;
  std::string what;  // name of the span or kernel
};

struct PathShare {
  std::string bound;
  double ns = 0;     // per step
  double share = 0;  // of 1
};

struct CriticalPath {
  std::vector<PathEdge>
      edges;               // of the last complete window's median step, first to last, without gaps
  std::uint64_t step = 0;  // that one
  // Where the host computes: the time without a core in that step, which its edges include.
  double core_wait_ns = 0;
  std::vector<PathShare> shares;  // over all steps of the complete windows, largest first
};
CriticalPath critical_path(const View& view);

// The walk back from a step's end along what it waited for.

class PathWalk {
 public:
  explicit PathWalk(const View& view);

  // First to last; they tile the interval exactly.
  std::vector<PathEdge> edges(const Interval& step) const;

 private:
  struct Walk;  // of one step

  void on_host(Walk& walk) const;
  void on_device(Walk& walk) const;
  void between(std::uint64_t from_ns, Walk& walk) const;
  const Activity* running_or_last(std::uint64_t at_ns) const;
  const Activity* last_ended(std::uint64_t at_ns) const;
  const Activity* before_on_stream(const Activity& activity) const;

  const View& view_;
  const Session& session_;
  std::vector<HostSlice> host_;
  std::vector<const Activity*> by_start_;  // work of devices, none of it empty
  std::vector<const Activity*> latest_;    // of those up to here, the one that ends last
  std::vector<const Activity*> by_end_;
  std::unordered_map<const Activity*, const Activity*> previous_;  // on the same stream
};

}  // namespace warpstep::profiler

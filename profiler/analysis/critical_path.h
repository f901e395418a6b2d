// The chain of waits that a step's length is made of.
#pragma once

#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct PathEdge {
  std::uint64_t begin_ns = 0, end_ns = 0;
  // "kernel", "copy": the device (on a host: calls, copies) works; "launch": from a launch's begin
  // to what it launched, or the driver; "data", "sync": the trainer waits for the loader, for the
  // device; "cpu": it does something named; "idle": nothing that was recorded happens.
  std::string bound;
  std::string what;  // name of the span or kernel
};

struct PathShare {
  std::string bound;
  double ns = 0;     // a step
  double share = 0;  // of 1
  double gain_ns =
      0;  // a step: what it would gain if these edges took no time and nothing else moved up
};

struct CriticalPath {
  std::vector<PathEdge>
      edges;               // of the last complete window's median step, first to last, without gaps
  std::uint64_t step = 0;  // that one
  std::vector<PathShare> shares;  // over all steps of the complete windows, largest first
};
CriticalPath critical_path(const Session& session);

}  // namespace warpstep::profiler

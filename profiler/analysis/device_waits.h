// Where the thread that trains waits for a device that has nothing to do meanwhile.
#pragma once

#include <string>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

struct LongestWait {
  std::string range;  // the innermost one around it; empty: none, or no wait was recorded
  double share = 1;   // of 1, of all these waits
};

// Of the recorded steps. Waits while the device works lengthen no step: the host is ahead of it.
LongestWait longest_exposed_wait(const View& view);

}  // namespace warpstep::profiler

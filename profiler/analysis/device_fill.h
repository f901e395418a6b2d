// When a device's kernels have too few blocks for its multiprocessors, and which calls these are
// of.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

struct FewBlocks {         // of a call
  std::int64_t call = -1;  // into the program; -1: kernels of none
  double ns = 0;           // per recorded step: such time, shared with calls that run beside it
  double blocks = 0;       // that run meanwhile, of all kernels: mean over that time
};

struct DeviceFill {
  std::uint32_t multiprocessors = 0;  // of the device with most such time
  double few_ns = 0;  // per recorded step: kernels run, with blocks for less than half of these
  std::vector<FewBlocks> calls;  // longest first
};
DeviceFill device_fill(const View& view);

}  // namespace warpstep::profiler

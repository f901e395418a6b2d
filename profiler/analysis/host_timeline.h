// What the trainer's thread did at each moment, in the words of the critical path.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::analysis {

struct HostSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::string_view bound;  // "kernel", "launch", "copy", "data", "sync" or "cpu"
  std::uint32_t name = 0;
};

// In order, disjoint. What waits or, on a host that computes, is a call, is so with all that is
// nested in it.
std::vector<HostSlice> host_timeline(const Session& session);

}  // namespace warpstep::profiler::analysis

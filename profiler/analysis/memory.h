// The memory of a step over its calls, from the plan: owners and lifetimes.
#pragma once

#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct MemoryOwner {
  std::string layer,
      kind;  // "activation", "workspace", "parameter", "gradient", "moment", "input", ...
  std::string name;
  std::uint64_t bytes = 0;
};

struct Allocation {  // in the arena, alive from first to last call, both included
  MemoryOwner owner;
  std::uint64_t offset = 0;
  int first_call = 0, last_call = 0;  // 0-based
};

struct MemoryTimeline {
  std::vector<Allocation> allocations;
  std::vector<MemoryOwner> persistent;  // outside the arena
  std::vector<std::string> kinds;       // of the curves
  std::vector<std::vector<std::uint64_t>>
      by_kind;                    // bytes alive: [kind][call], persistent ones too
  std::uint64_t arena_bytes = 0;  // reserved
  std::uint64_t persistent_bytes = 0;
  std::uint64_t peak_bytes = 0;      // arena's live bytes at the peak
  int peak_call = 0;                 // 0-based
  std::vector<MemoryOwner> at_peak;  // largest first
  double fragmentation = 0;          // of 1: reserved and never alive at the peak
};
MemoryTimeline memory_timeline(const Session& session);

}  // namespace warpstep::profiler

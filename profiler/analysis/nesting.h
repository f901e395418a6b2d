// What a thread was doing at each moment: the innermost of its nested spans.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/analysis/breakdown.h"

namespace warpstep::profiler::analysis {

struct Slice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::size_t item = 0;  // the innermost one
};

struct Nesting {
  std::vector<Slice> slices;         // disjoint, in order; together the union of the items
  std::vector<std::int64_t> parent;  // of each item; -1: none
};

// Items by begin, of equal begins the longer one first. Items that overlap without nesting, which
// one thread's do not, take from each other what the later one covers.
Nesting nest(const std::vector<Interval>& items);

}  // namespace warpstep::profiler::analysis

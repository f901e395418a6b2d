// A window's records, put together: the same for what CUPTI gave and for what was dumped.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/sources/cupti_parse.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

// What belongs to a window besides its buffers.
struct WindowFacts {
  std::vector<ClockReading> clocks;
  std::unordered_map<std::uint64_t, std::uint64_t> calls;  // by a graph's node
  std::uint64_t dropped = 0;                               // by CUPTI
  std::vector<std::string> notes;
};

Traced assemble(Parser& parser, const WindowFacts& facts);

}  // namespace warpstep::profiler

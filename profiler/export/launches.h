// Which call of the host launched which work of the device, so that each work has a launch of its
// own and each launch one work: what readers of Kineto traces take for granted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/export/trace_facts.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// A call of the runtime or driver on a host thread.
struct HostCall {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t correlation = 0;    // unique
  std::uint32_t thread = 0;         // gettid()
  std::string name;                 // "cudaLaunchKernel"
  std::optional<std::size_t> part;  // into LaunchPlan::parts, of a graph's launch
  bool launches = false;
};

// The part of a graph's launch that stands for one call of the program. A graph is enqueued whole,
// so that the parts' times are equal shares of the launch and say nothing.
struct GraphPart {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t call = 0;  // into the program's calls
  std::uint32_t thread = 0;
};

struct LaunchPlan {
  std::vector<HostCall> calls;
  std::vector<GraphPart> parts;
  std::vector<std::uint64_t> correlations;  // by activity; 0: not the device's, or without times
};

// One record a correlation, the runtime's where the driver told too. With `split_graphs` each node
// of a graph gets a correlation and a launch inside the graph's. Work whose launch was not recorded
// gets one of 1 ns on the trainer's thread.
LaunchPlan plan_launches(const Session& session, const TraceFacts& facts, bool split_graphs);

}  // namespace warpstep::profiler

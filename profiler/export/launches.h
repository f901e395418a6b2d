// Which call of the host launched which work of the device, so that each work has a launch of its
// own and each launch one work: readers of Kineto traces assume both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// What every trace of a session begins with: whose it is, and from when its times are counted.

struct TraceFacts {
  std::uint32_t pid = 0;         // of the run; none of a device's id
  std::uint32_t trainer = 0;     // into Session::threads
  std::uint32_t trainer_id = 0;  // gettid()
  std::string host;              // "host" when the stamp has none
  std::uint64_t base_ns = 0;     // not later than anything that the session has
  // CLOCK_REALTIME less CLOCK_MONOTONIC at the first reading of the clocks: one number for the
  // whole trace, so that a step of the wall clock moves nothing. 0 without a reading.
  std::int64_t realtime_offset_ns = 0;

  std::uint64_t realtime_ns(std::uint64_t monotonic_ns) const {
    return monotonic_ns + static_cast<std::uint64_t>(realtime_offset_ns);
  }
};
TraceFacts trace_facts(const Session& session);

// CUPTI gives the legacy stream another number than 0 in its records; readers take 0 for none.
inline std::uint32_t stream_of(const Activity& activity) {
  return activity.stream == 0 ? 7 : activity.stream;
}

// "conv1 forward", of the program's call `index`; empty when the program has none such.
std::string call_title(const Session& session, std::uint64_t index);

// The track of a counter: of the run, or where its name says so ("worker ...") of its thread.
std::string counter_name(const Session& session, const Span& counter);

// Slices that overlap on one track, spread over as many tracks as they need.

enum class Nesting : std::uint8_t {
  allowed,  // a slice may lie inside another: calls of a host thread
  none,     // side by side, or on different lanes: the work of a stream
};

// Gives slices lanes, the lowest that is free; they must come by begin, then the longer one first.
// Everything is of one track.
class Lanes {
 public:
  explicit Lanes(Nesting nesting) : nesting_(nesting) {}

  // 0, 1, ...: the lane of [begin_ns, end_ns).
  std::uint32_t take(std::uint64_t begin_ns, std::uint64_t end_ns) {
    std::uint32_t lane = 0;
    while (lane < open_.size() && !fits(open_[lane], begin_ns, end_ns)) ++lane;
    if (lane == open_.size()) open_.emplace_back();
    open_[lane].push_back(end_ns);
    return lane;
  }

 private:
  // Closes what has ended on the lane; what is left is open and encloses all that comes after it.
  bool fits(std::vector<std::uint64_t>& ends, std::uint64_t begin_ns, std::uint64_t end_ns) const {
    while (!ends.empty() && ends.back() <= begin_ns) ends.pop_back();
    return ends.empty() || (nesting_ == Nesting::allowed && end_ns <= ends.back());
  }

  Nesting nesting_;
  std::vector<std::vector<std::uint64_t>> open_;  // by lane: ends of open slices, innermost last
};

// A call of the runtime or driver on a host thread.
struct HostCall {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t correlation = 0;    // unique
  std::uint32_t thread = 0;         // gettid()
  std::string name;                 // "cudaLaunchKernel"
  std::optional<std::size_t> part;  // into LaunchPlan::parts, of a graph's launch
  bool launches = false;
};

// The part of a graph's launch that represents one call of the program. A graph is enqueued whole,
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

// One record per correlation, the runtime's where the driver recorded one too. With `split_graphs`
// each node of a graph gets a correlation and a launch inside the graph's. Work whose launch was
// not recorded gets one of 1 ns on the trainer's thread.
LaunchPlan plan_launches(const Session& session, const TraceFacts& facts, bool split_graphs);

}  // namespace warpstep::profiler

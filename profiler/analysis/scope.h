// What of a session the analysis looks at: the steps that were recorded in full, and the thread
// that trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/session/session.h"

namespace warpstep::profiler::fields {

// Fields of the objects that a session holds: any of them may be missing or of another type.

using Json = nlohmann::ordered_json;

// What stands under `key`; nullptr where there is nothing, or `object` is no object.
const Json* member(const Json& object, std::string_view key);
// The object or array under `key`; an empty object when there is none.
const Json& child(const Json& object, std::string_view key);
double number(const Json& object, std::string_view key, double otherwise = 0);
std::int64_t whole(const Json& object, std::string_view key, std::int64_t otherwise = 0);
std::string text(const Json& object, std::string_view key, std::string_view otherwise = "");
bool flag(const Json& object, std::string_view key, bool otherwise = false);

}  // namespace warpstep::profiler::fields

namespace warpstep::profiler::analysis {

// The session's program as the analysis wants it: engine's explain_json() without the JSON. What is
// missing or of another type is empty, 0 or left out: nothing here throws.

// Fields of an object that may have them; else the fallback.
const Json& part(const Json& object, std::string_view key);  // null when there is none
double number(const Json& object, std::string_view key, double otherwise = 0);
std::uint64_t count(const Json& object, std::string_view key);  // 0 also for negative ones
std::string text(const Json& object, std::string_view key, std::string_view otherwise = "");

struct ProgramCall {
  std::string title, layer, op, implementation;
  std::string phase;                       // "forward", "loss", "data_grad", ..., as CallRow
  std::string inputs;                      // "f32 128x32x32x3, f32 8x3x3x3"
  double flops = 0, bytes = 0;             // a run
  std::vector<std::int64_t> last_extents;  // of the inputs and outputs that are float: channels
};
// As work.h has them; the engine's listing has some short.
std::string phase_of(const Json& call);
std::vector<ProgramCall> program_calls(const Session& session);

// "fp32", "tf32", "bf16" or "fp16": what the run was asked to compute in.
std::string precision(const Session& session);

// Into Session::threads: the one that waits for data, else "main", else the first.
std::optional<std::uint32_t> trainer_thread(const Session& session);
// Whether an activity of the kind api or sync is one of that thread.
bool is_of_thread(const Session& session, const Activity& activity,
                  std::optional<std::uint32_t> thread);

inline bool is_on_device(const Activity& activity) {
  return activity.what == What::kernel || activity.what == What::copy ||
         activity.what == What::set || activity.what == What::graph;
}

// Whether the kernels of graphs were recorded, so that graphs as a whole would count them twice.
bool tells_graph_kernels(const Session& session);

// The time of each step; where a step begins before the one before ends, that is cut off.
std::vector<Interval> step_times(const Session& session);

// Steps (into Session::steps, in order) of complete windows in which something was recorded that
// their parts can be told from: spans of the trainer where the host computes, activities of the
// device where one does. Without the latter nobody knows when a kernel ran.
std::vector<std::size_t> recorded_steps(const Session& session);

// Steps that means are over: the recorded ones; else those of complete windows; else all but the
// first, which warms up.
std::vector<std::size_t> counted_steps(const Session& session);

// The recorded steps' times, to ask which of them a moment belongs to.
class StepIndex {
 public:
  explicit StepIndex(const Session& session);

  std::size_t size() const { return times_.size(); }
  const std::vector<Interval>& times() const { return times_; }
  std::size_t step(std::size_t i) const { return steps_[i]; }  // into Session::steps
  std::uint64_t total_ns() const { return profiler::total_ns(times_); }
  // Which one begins at or before and ends after `at_ns`; none: -1.
  int at(std::uint64_t at_ns) const;

 private:
  std::vector<std::size_t> steps_;
  std::vector<Interval> times_;
};

// Launches by correlation: the host's record of each.
class Launches {
 public:
  explicit Launches(const Session& session);

  // Null: unknown.
  const Activity* find(std::uint32_t correlation) const;

 private:
  const Session& session_;
  std::unordered_map<std::uint32_t, std::uint32_t> by_correlation_;
};

}  // namespace warpstep::profiler::analysis

namespace warpstep::profiler::advice {

// Which steps figures are taken over, and where they lie.

// Indices into Session::steps: those of complete windows; without any all but the first, which
// warms up.
std::vector<std::size_t> counted_steps(const Session& session);

// Whether a moment lies in a complete window.
bool in_windows(const Session& session, std::uint64_t at_ns);
std::uint64_t windows_ns(const Session& session);  // the complete ones' time

// The step in which a moment lies; Session::steps.size() for none.
std::size_t step_at(const Session& session, std::uint64_t at_ns);

// Of a sampled metric over the counted steps' time, over all of it when there is none within.
struct Level {
  std::size_t count = 0;  // 0: not sampled
  double mean = 0, most = 0;
};
Level level(const Session& session, std::string_view metric);

// Cores that the process may use; 0 when the session does not tell.
int cores(const Session& session);

}  // namespace warpstep::profiler::advice

namespace warpstep::profiler::analysis {

// What the trainer's thread did at each moment, in the words of the critical path.

struct HostSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::string_view bound;  // "kernel", "launch", "copy", "data", "sync" or "cpu"
  std::uint32_t name = 0;
};

// In order, disjoint. What waits or, on a host that computes, is a call, is so with all that is
// nested in it.
std::vector<HostSlice> host_timeline(const Session& session);

}  // namespace warpstep::profiler::analysis

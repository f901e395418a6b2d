// What of a session the analysis looks at: the steps that were recorded in full, and the thread
// that trains.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/session/session.h"

namespace warpstep::profiler::analysis {

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

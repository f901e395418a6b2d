// The view of a session that every analysis starts from: which steps are counted, the thread that
// trains, the program, and the launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/core/cpus.h"
#include "engine/core/json_text.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/samples.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// A call of the session's program: engine's explain_json() without the JSON. Missing fields are
// empty or 0: nothing here throws.
struct ProgramCall {
  std::string title, layer, op, implementation;
  std::string phase;                       // "forward", "loss", "data_grad", ..., as CallRow
  std::string source;                      // "models/mlp.cpp:6"; empty: not of the model, not known
  std::string inputs;                      // "f32 128x32x32x3, f32 8x3x3x3"
  std::string attributes;                  // of the op: "mean of 2 ranks, each its share"
  double flops = 0, bytes = 0;             // per run
  double executed_flops = 0;               // less than `flops` where the implementation needs fewer
  std::vector<std::int64_t> last_extents;  // of the inputs and outputs that are float: channels
};
// Calls of a session without a program: a larger index is damage.
inline constexpr std::size_t most_calls = 1U << 16;

// The names of work.h; the engine's listing shortens some.
std::string phase_of(const Json& call);

// Whether an activity of the kind api or sync belongs to that thread.
bool is_of_thread(const Session& session, const Activity& activity,
                  std::optional<std::uint32_t> thread);

// Whether the kernels of graphs were recorded, so that graphs as a whole would count them twice.
bool has_graph_kernels(const Session& session);

// The time of each step; where a step begins before the previous one ends, that is cut off.
std::vector<Interval> step_times(const Session& session);

std::vector<Window> complete_windows(const Session& session);
// The steps of windows: their numbers, and their places in Session::steps.
IntervalSet step_numbers(const std::vector<Window>& windows);
std::vector<std::size_t> steps_of(const Session& session, const std::vector<Window>& windows);

// The step in which a moment lies; Session::steps.size() for none.
std::size_t step_at(const Session& session, std::uint64_t at_ns);

// --accumulate: an update is made in the steps that are multiples of it.
std::size_t steps_per_update(const Session& session);

// The CPUs that the process may run on. Empty: not recorded.
CpuSet affinity_of(const Session& session);

// Cores that the process may use; 0 when the session does not say.
int usable_cores(const Session& session);

// The devices that the run computed on. Older sessions describe all that the process might use: of
// these the ones that did something, else the one that --device names, else the first.
std::vector<const Device*> run_devices(const Session& session);

// The stamp's entry of a device: the one with its number as "id", in older sessions the one at its
// place. Null where there is none.
const Json* stamped_gpu(const Session& session, std::uint32_t device);

// The recorded steps with their times, to look up the step of a moment.
class StepIndex {
 public:
  StepIndex(const Session& session, std::vector<std::size_t> steps);

  std::size_t size() const { return times_.size(); }
  const std::vector<Interval>& times() const { return times_; }
  const std::vector<std::size_t>& steps() const { return steps_; }
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

// A session and what all analyses look up in it, found once. Implicit, so that a single question
// can be asked of a session: break_down(session). The session must outlive it.
struct View {
  View(const Session& session);

  const Session& session;
  const Json& options;  // of the command line, _ for -
  // Into Session::threads: the one that waits for data, else "main", else the first.
  std::optional<std::uint32_t> trainer;
  std::vector<ProgramCall> program;
  // The complete windows that have the counted steps: those with traced activity, else all.
  std::vector<Window> windows;
  IntervalSet window_times;
  // Steps of complete windows with traced activity: spans of the trainer where the host computes,
  // activities of the device where one does. Only their parts are known in detail.
  StepIndex recorded;
  // The steps that every mean is over, into Session::steps: the recorded ones; else those of
  // complete windows; else all but the first, which warms up, but never none of some.
  std::vector<std::size_t> counted;
  IntervalSet counted_times;  // without what lies between them
  Launches launches;
  SampledMetrics metrics;

  // The precision that was requested: "fp32", "tf32", "bf16" or "fp16".
  std::string precision() const { return fields::text(options, "precision", "fp32"); }
  bool in_windows(std::uint64_t at_ns) const;  // of `windows`
  // In a counted step of these: what lies between steps is of evaluations and checkpoints.
  bool in_steps(std::uint64_t at_ns) const;
  std::uint64_t windows_ns() const;
};

// Whose rules a report follows.
struct ReportRules {
  // torch_tb_profiler's, so that its figures can be compared: no sync category, all threads count
  // as CPU, device work after the step's end belongs to the step; a device's figures are over each
  // window from its first step's begin to its last one's end, with what lies between steps. Its
  // double counting is not repeated.
  bool tb_compatible = false;
};

// Threads of the team that computes on the host, as asked for or by default; 0 where a device
// computes.
int kernel_threads(const View& view);

// Of a sampled metric over the counted steps' time; over all of the run when no sample lies within.
MetricLevel metric_level(const View& view, std::string_view metric);

// The trainer's thread at each moment, in the words of the critical path.
struct HostSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::string_view bound;  // "kernel", "launch", "copy", "data", "sync" or "cpu"
  std::uint32_t name = 0;
};
// In order, disjoint. A wait, or a call on a host that computes, includes all that is nested in it.
std::vector<HostSlice> host_timeline(const View& view);

}  // namespace warpstep::profiler

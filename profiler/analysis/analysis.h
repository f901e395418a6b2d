// All questions about a session, asked at once. Pure: the same session gives the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/contention.h"
#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/device.h"
#include "profiler/analysis/device_fill.h"
#include "profiler/analysis/feeding.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/memory.h"
#include "profiler/analysis/ranks.h"
#include "profiler/analysis/slow_steps.h"
#include "profiler/analysis/stall.h"
#include "profiler/analysis/table.h"
#include "profiler/analysis/whole_run.h"
#include "profiler/analysis/work.h"

namespace warpstep::profiler {

// How far the report may be trusted.
struct Trust {
  Losses losses;
  // The cost of recording: by the calibrated cost of a span; where device records, whose cost is
  // not calibrated, were written, by comparing steps in windows with those outside; else not known.
  enum class Cost : std::uint8_t { calibrated, measured, unknown };
  Cost cost = Cost::calibrated;
  double overhead_ns = 0;        // per step; where it is not known, of the spans alone
  double overhead_share = 0;     // of 1
  double overhead_error_ns = 0;  // either way; of a measured one
  double overhead_error_share = 0;
  std::uint64_t clock_error_ns = 0;
  // Something took cores or memory from the run: other programs, a quota, reclaim. Its times are
  // right, but not those of this machine at rest.
  bool is_disturbed = false;
  std::vector<std::string> notes;  // anything not recorded, and why; throttling; incomplete windows
};

// What to do next.
struct Finding {
  std::string key;       // "data-wait", "launch-bound", ...: stable, for scripts
  std::string text;      // the problem, one sentence
  std::string evidence;  // the numbers behind it
  std::string advice;    // "use --workers 6"
  std::string flag;      // the option to change: "--workers 6"; may be empty
  double gain_ns = 0;    // per step, expected; 0: not known
  // The range that holds it, where it cannot be given more exactly; else both 0.
  double gain_least_ns = 0, gain_most_ns = 0;
  // Of the whole run, expected. find_findings() computes it from gain_ns and adds what a rule set,
  // which is saved between steps; rules about time outside of steps alone set only this, and
  // gain_ns becomes its share per step.
  double run_gain_ns = 0;
  bool outside_steps = false;
  bool ends_run = false;  // soon, and so it comes before everything that would make the run shorter
  bool spoils_figures = false;   // also those of the findings after it
  bool changes_results = false;  // and so it comes after everything that leaves them as they are
};

// Whether recording is known to have cost less than 1 % of a step.
bool costs_little(const Trust& trust);

struct Analysis {
  Breakdown breakdown;
  Contention contention;
  std::vector<DeviceMetrics> devices;
  DeviceFill fill;
  Work work;
  MemoryTimeline memory;
  LoaderView loader;
  Stall stall;
  FeedWaits feed;
  CriticalPath path;
  WholeRun run;
  std::vector<SlowStep> slow_steps;
  std::optional<SlowRank> slow_rank;  // of the session's job
  std::vector<Finding> findings;      // largest gain of the run first
  Trust trust;
};
// `job`: what the sessions of all ranks of its job say, where they are at hand.
Analysis analyse(const Session& session, const RanksView* job = nullptr);

std::vector<Finding> find_findings(const View& view, const Analysis& so_far);
// `awaited_workers`: of the loader, where steps wait for their batches.
Trust find_trust(const View& view, const Breakdown& breakdown, int awaited_workers = 0);

// Every table of the report: "whole_run", "breakdown", "steps", "modules", "layers", "calls",
// "ops", "kernels", "host", "memory", "loader", "stalls", "critical_path", "findings", "devices",
// "samples".
std::vector<Table> tables(const Session& session, const Analysis& analysis);

}  // namespace warpstep::profiler

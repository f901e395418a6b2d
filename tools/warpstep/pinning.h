// --pin-cpus: which CPUs the threads of a run use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/core/cpus.h"
#include "engine/run/backend.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {

struct Pinning {
  ThreadPlaces places;  // empty: nothing is pinned
  bool shares = false;  // no CPU was left for the other threads: they run on the team's

  int threads() const { return static_cast<int>(places.team.size()); }
  // "2 threads on CPUs 0-1, loader on CPUs 2-3"; empty if nothing is pinned.
  std::string text() const;
};
// {"team": "0-1", "others": "2-3"}, "none" twice if nothing is pinned.
void to_json(Json& json, const Pinning& pinning);

// What a process may use.
struct AvailableCpus {
  CpuSet allowed;               // the affinity mask
  std::optional<double> quota;  // of the control group, in cores
};
AvailableCpus available_cpus();

// Throws UsageError unless `text` is auto, none or a list of CPUs (parse_cpus).
void check_pin_cpus(const std::string& text);

// The team takes one CPU per thread, one per core first (by_core); all other threads share the CPUs
// that are left. `auto` uses all CPUs of `available`, but no more for the team than the quota has;
// a list uses its own. `threads` of 0 takes as many as there are. Of processes that have the same
// CPUs, and the same list, each takes its part of both, and of the quota. Throws UsageError when a
// listed CPU is not allowed, and when there are more threads than CPUs.
Pinning choose_pinning(const std::string& text, int threads, const AvailableCpus& available,
                       CpuShare share = {}, const std::filesystem::path& root = "/");

}  // namespace warpstep::tools

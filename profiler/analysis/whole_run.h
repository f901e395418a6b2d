// Where the wall time of a whole run went: its phases, which add up to it exactly. Steps are one of
// them; start-up, evaluations and checkpoints are others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct RunPart {
  std::string name;  // "evaluation"
  double ns = 0;     // its parts included
  std::uint64_t count = 0;
  std::vector<RunPart>
      parts;  // "gather", "write", "fsync"; the rest is "other" if it is 1 % or more
};

struct WholeRun {
  // From the process's start to the last thing recorded. Of sessions without phases, which older
  // versions wrote, from the first step's begin to the last one's end, with all else as "other".
  double wall_ns = 0;
  bool has_phases = false;
  std::vector<RunPart> parts;  // in the order in which they first began; "other" is last
  double first_step_ns = 0;    // from the process's start to the end of the first step; 0: unknown
  double steps = 0;            // trained by this process

  // Null: there is none of this name.
  const RunPart* part(std::string_view name) const;
};
WholeRun whole_run(const Session& session);

// "0.41 s fsync, 0.02 s gather": the parts of a part that take 5 % of it or more, longest first;
// `times`: of how many such parts these are the means.
std::string parts_text(const RunPart& part, std::uint64_t times = 1);

// "whole_run": a row per part, and one per part of a part.
Table run_table(const WholeRun& run);

}  // namespace warpstep::profiler

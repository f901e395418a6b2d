// The steps that were much slower than their neighbours, which a run keeps by itself, without a
// window: which part grew, and what ran then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct SlowStep {
  std::uint64_t step = 0;
  double ns = 0, median_ns = 0;
  std::string part;  // the part that grew most against the median of the other steps
  double grew_ns = 0;
  std::string ran;  // the longest spans in it: "31.0 ms read (loader 0), 30.1 ms wait for data"
};
// The slowest first, at most five.
std::vector<SlowStep> slow_steps(const Session& session);

Table slow_steps_table(const std::vector<SlowStep>& steps);  // "slow_steps"

}  // namespace warpstep::profiler

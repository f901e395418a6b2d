// Which category every span and activity of a session belongs to.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/session/session.h"

namespace warpstep::profiler::analysis {

using ByCategory = std::array<std::vector<Interval>, categories>;

ByCategory by_category(const Session& session, const BreakdownOptions& options);

// Whether a kernel moves data between devices: NCCL's are all called so.
bool is_communication(std::string_view kernel);

// The steps as torch_tb_profiler bounds them (event_parser.py): a step lasts until the work that it
// launched is done, and the next one begins then.
struct TbSteps {
  std::vector<Interval> times;  // of `steps`
  std::vector<bool> is_kept;    // false: a step at the end that is cut off, by its device work
};
TbSteps tb_steps(const Session& session, const std::vector<std::size_t>& steps);

}  // namespace warpstep::profiler::analysis

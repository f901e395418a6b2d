// warpstep try: a run again, as it was and with a change, in turns.
#pragma once

#include <filesystem>
#include <string>

#include "profiler/analysis/analysis.h"

namespace warpstep::tools {

// "To measure what that changes: warpstep try RUN --workers 3" for the first advice that `try` can
// measure; printed below a report. Empty: there is none, or no run to try it with.
std::string line_that_tries(const profiler::Analysis& analysis, const std::filesystem::path& run);

}  // namespace warpstep::tools

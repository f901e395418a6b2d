// Which steps figures are taken over, and where they lie.
#pragma once

#include <cstddef>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::advice {

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

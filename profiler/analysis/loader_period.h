// Stalls that come again every so many steps.
#pragma once

#include <cstdint>
#include <vector>

namespace warpstep::profiler::advice {

// The smallest period p >= 2 such that one step in p has at least 90 % of all waiting, at least
// three times, and no more than one of these steps goes without a wait of 2 % of `step_ns`; 0 for
// none.
int stall_period(const std::vector<std::uint64_t>& waits_ns, double step_ns);

}  // namespace warpstep::profiler::advice

// Whether two runs may be compared, and what besides the change in question may explain one.
#pragma once

#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::advice {

// Throws UsageError that names both sides when devices, models or batches differ and `force` is
// false; else what differs in the stamps, one sentence each.
std::vector<std::string> check_comparable(const Session& before, const Session& after, bool force);

}  // namespace warpstep::profiler::advice

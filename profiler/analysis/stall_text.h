// A stall in one line.
#pragma once

#include <string>

#include "profiler/analysis/loading.h"

namespace warpstep::profiler::advice {

// "steps 412-420: waited 12.3 of 41.0 ms (30%) for the loader; decode is 71% of 164 ms worker time
// per batch, CPU-bound; 6 workers hide it (step 28.7 ms, 1.43x); staying at 4 workers, decode must
// get 1.73x faster."
std::string stall_text(const LoaderView& view, const Stall& stall);

// "12.3 ms", "870 us": three digits.
std::string time_text(double ns);
std::string share_text(double share);                           // "30%", "2.5%"
std::string count_text(double count, const std::string& noun);  // "1 worker", "4 workers"

}  // namespace warpstep::profiler::advice

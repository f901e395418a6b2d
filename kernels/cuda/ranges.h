// Ranges that a profiler attached from outside (nsys, ncu) shows by the model's own words: the NVTX
// domain "warpstep".
#pragma once

#include <string>

namespace warpstep::cuda::ranges {

const void* make(const std::string& name);  // a registered string; lives as long as the process
void begin(const void* range);
void end();

}  // namespace warpstep::cuda::ranges

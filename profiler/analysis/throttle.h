// GPUs that held their clocks back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::advice {

struct Throttle {
  std::uint32_t gpu = 0;
  double share = 0;  // of 1, of the samples
  std::string why;   // "power cap, thermal"
};

// From the samples "gpu N throttle reasons", a mask of nvml.h's nvmlClocksEventReason*: those that
// slow a busy GPU, so not idleness nor clocks that somebody set.
std::vector<Throttle> throttled(const Session& session);

}  // namespace warpstep::profiler::advice

// What the tests of the trigger and of its socket share.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "profiler/recorder/trigger_socket.h"

namespace warpstep::profiler::testing {

inline constexpr uid_t nobody = 65534;

inline Deadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

}  // namespace warpstep::profiler::testing

// The clock of all timings.
#pragma once

#include <chrono>
#include <cstdint>

namespace warpstep {

// CLOCK_MONOTONIC, as kernels that read the host's clock and CUDA's tools have it.
inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace warpstep

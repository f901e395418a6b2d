// The clock of all timings.
#pragma once

#include <chrono>
#include <cstdint>

namespace warpstep {

// CLOCK_MONOTONIC, which CUDA's tools and kernels that read the host's clock also use.
inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace warpstep

// Mapping CUPTI's times to CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

// The best of five readings: ClockReading::error_ns bounds the error of monotonic_ns.
ClockReading read_clocks(const CuptiApi& api);

// Maps CUPTI's times to CLOCK_MONOTONIC, linearly between readings. CUPTI follows CLOCK_REALTIME,
// which NTP may set during a window: between the two readings around such a jump, a time keeps its
// distance to the nearer reading.
class ClockMap {
 public:
  explicit ClockMap(std::span<const ClockReading> readings);  // in order of time, at least one
  std::uint64_t to_monotonic(std::uint64_t device_ns) const;
  std::int64_t set_by_ns() const { return set_by_ns_; }  // 0: the clock was not set

 private:
  struct Point {
    std::uint64_t device_ns = 0, monotonic_ns = 0;
  };
  struct Stretch {  // between readings that agree
    Point from, to;
  };

  std::vector<Stretch> stretches_;  // by from.device_ns
  std::vector<Point> points_;       // by device_ns
  std::int64_t set_by_ns_ = 0;
};

}  // namespace warpstep::profiler

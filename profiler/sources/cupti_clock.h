// CUPTI's clock and ours.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

// The best of a few readings: ClockReading::error_ns is how far monotonic_ns may be off.
ClockReading read_clocks(const CuptiApi& api);

// Maps CUPTI's times to CLOCK_MONOTONIC, linearly between readings. CUPTI follows CLOCK_REALTIME,
// which NTP may set meanwhile: between two readings where that happened a time keeps its distance
// to the nearer one.
class ClockMap {
 public:
  explicit ClockMap(std::span<const ClockReading> readings);  // in order of time, at least one
  std::uint64_t to_monotonic(std::uint64_t device_ns) const;
  std::int64_t set_by_ns() const { return set_by_ns_; }  // 0: nobody set the clock

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

// Helpers for tests of windows.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/record.h"
#include "profiler/sources/cupti_testing.h"
#include "profiler/sources/cupti_trace.h"

namespace warpstep::profiler::testing {

inline constexpr TraceSettings settings{.between_readings = std::chrono::hours(1)};

inline std::unique_ptr<DeviceTrace> open(const FakeCupti& cupti,
                                         const TraceSettings& how = settings) {
  OpenedTrace opened = open_trace(cupti.api(), {}, how);
  if (!opened.why.empty()) fail<Error>("{}", opened.why);
  return std::move(opened.trace);
}

inline std::string name(const Activity& activity) {
  return record::names()[activity.name].text;
}

inline std::vector<Activity> of(const Traced& traced, What what) {
  std::vector<Activity> some;
  std::ranges::copy_if(traced.activities, std::back_inserter(some),
                       [&](const Activity& a) { return a.what == what; });
  return some;
}

inline std::uint64_t total_ns(const std::vector<Activity>& activities) {
  std::uint64_t sum = 0;
  for (const Activity& a : activities) sum += a.end_ns - a.start_ns;
  return sum;
}

// Kernels' time by call; ~0: without a call.
inline std::map<std::uint64_t, std::uint64_t> by_call(const Traced& traced) {
  std::map<std::uint64_t, std::uint64_t> sums;
  for (const Activity& a : of(traced, What::kernel))
    sums[std::uint64_t{a.external} - 1] += a.end_ns - a.start_ns;
  return sums;
}

}  // namespace warpstep::profiler::testing

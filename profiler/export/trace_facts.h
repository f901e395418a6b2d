// What every trace of a session begins with: whose it is, and from when its times are counted.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct TraceFacts {
  std::uint32_t pid = 0;         // of the run; none of a device's id
  std::uint32_t trainer = 0;     // into Session::threads
  std::uint32_t trainer_id = 0;  // gettid()
  std::string host;              // "host" when the stamp does not tell
  std::uint64_t base_ns = 0;     // not later than anything that the session has
  // CLOCK_REALTIME less CLOCK_MONOTONIC at the first reading of the clocks: one number for the
  // whole trace, so that a step of the wall clock moves nothing. 0 without a reading.
  std::int64_t realtime_offset_ns = 0;

  std::uint64_t realtime_ns(std::uint64_t monotonic_ns) const {
    return monotonic_ns + static_cast<std::uint64_t>(realtime_offset_ns);
  }
};
TraceFacts trace_facts(const Session& session);

// Whether a step lies in a window that was recorded to its end.
bool in_complete_window(const Session& session, const Step& step);

// Whether an activity is the device's own work, not a host thread's.
inline bool is_device_work(const Activity& activity) {
  return activity.what == What::kernel || activity.what == What::copy ||
         activity.what == What::set || activity.what == What::graph;
}
// CUPTI gives the legacy stream another number than 0 in its records; readers take 0 for none.
inline std::uint32_t stream_of(const Activity& activity) {
  return activity.stream == 0 ? 7 : activity.stream;
}
// "Memcpy HtoD (Pinned -> Device)" and the like; the session's own name when kinds are not told.
std::string activity_name(const Session& session, const Activity& activity);

// "conv1 forward", of the program's call `index`; empty when the program has none such.
std::string call_title(const Session& session, std::uint64_t index);

// The track of a counter: of the run, or where its name says so ("worker ...") of its thread.
std::string counter_name(const Session& session, const Span& counter);

}  // namespace warpstep::profiler

#pragma once

#include "profiler/export/perfetto_writer.h"
#include "profiler/export/trace_facts.h"

namespace warpstep::profiler::perfetto {

// The device's work as render stages, where overlapping ones are kept; an event's id is 1 + the
// activity's index. Gives the entries of InternedData that are no plain names.
ProtoMessage add_device_work(const Session& session, const TraceFacts& facts, Packets& packets);

inline std::uint64_t event_id(std::size_t activity) {
  return activity + 1;
}

}  // namespace warpstep::profiler::perfetto

// The slices of a Kineto trace: what of a session stands where, before it is written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/export/export.h"
#include "profiler/export/trace_facts.h"

namespace warpstep::profiler {

// In the order in which equal intervals enclose each other.
enum class SliceKind : std::uint8_t { annotation, op, runtime, loader, device, overhead };

struct KinetoSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;  // end > begin: viewers drop what takes no time
  std::int64_t pid = 0;                    // of the run, or the device's id; -1: CUPTI itself
  std::uint32_t tid = 0;                   // the thread, or the stream
  SliceKind kind = SliceKind::annotation;
  std::string_view category;
  std::string name;
  std::string args;               // members of a JSON object, without braces; may be empty
  std::uint64_t external_id = 0;  // unique among annotations and ops; of others: whose they are
  std::uint64_t correlation = 0;  // of runtime and device
  bool has_flow = false;          // an arrow from the launch to the work
};

struct KinetoSlices {
  std::vector<KinetoSlice> slices;  // by begin, then the longer one first
  // What overlaps on a track was spread over more: (pid, tid of the lane) -> (tid, lane from 2).
  std::map<std::pair<std::int64_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>> lanes;
};
KinetoSlices kineto_slices(const Session& session, const TraceFacts& facts,
                           const KinetoOptions& options);

}  // namespace warpstep::profiler

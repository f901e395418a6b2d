// Anybody's Kineto trace, read event by event and with nothing taken for granted: hostile input
// gives findings, never a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// Findings by rule: a rule that is broken a million times is one sentence.
class Findings {
 public:
  // `rule` keeps the order and joins what is alike; `text` is of the first one.
  void add(int rule, const std::string& text) {
    const auto [found, is_new] = by_rule_.try_emplace(rule, text, 0);
    if (!is_new) ++found->second.second;
  }
  std::vector<std::string> sentences() const;

 private:
  std::map<int, std::pair<std::string, std::size_t>> by_rule_;  // the first one, and how many more
};

enum class EventCategory : std::uint8_t {
  other,
  op,
  annotation,
  device_annotation,
  runtime,
  driver,
  work,  // of a device: kernel, copy, memset
};

struct TraceEvent {
  std::size_t index = 0;  // in traceEvents, from 0
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint32_t name = 0, track = 0;  // into KinetoEvents
  EventCategory category = EventCategory::other;
  char phase = 0;  // 'X', 's', 'f'
  bool binds_enclosing = false;
  std::optional<std::int64_t> pid, device, stream, correlation, external_id, flow;
};

struct KinetoEvents {
  std::vector<TraceEvent> events;  // slices and arrows of ac2g that are sound in themselves
  std::vector<std::string> names, tracks;
  std::unordered_map<std::string, std::string> thread_names;  // by track
  std::vector<std::int64_t> described_devices;                // in deviceProperties
  bool has_rank = false;
  Findings findings;

  // "event 17 (conv1)", of any length and any bytes
  std::string described(const TraceEvent& event) const;
};

// Throws DataError when the text is not JSON.
KinetoEvents read_kineto(std::string_view json);

}  // namespace warpstep::profiler

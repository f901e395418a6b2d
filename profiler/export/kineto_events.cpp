#include "profiler/export/kineto_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t longest_name = 60;  // bytes that a message shows

// Of the structure, in the order of the report; check_kineto.cpp continues from 100.
enum EventRule : int {
  shape,
  no_events,
  not_object,
  no_phase,
  no_name,
  no_time,
  no_category,
  no_track,
  huge_time,
  bad_flow
};

std::optional<std::int64_t> whole(const Json* value) {
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return value->get<std::int64_t>();
}

// us of a trace in ns; none when it is no number that can be one.
std::optional<std::int64_t> ns_of(const Json* us) {
  if (us == nullptr || !us->is_number()) return std::nullopt;
  const double ns = us->get<double>() * 1000;
  if (!std::isfinite(ns) || std::abs(ns) > 4e18) return std::nullopt;  // two of them can be added
  return std::llround(ns);
}

std::string_view text_of(const Json& event, const char* key) {
  const Json* value = fields::member(event, key);
  return value != nullptr && value->is_string()
             ? std::string_view(value->get_ref<const std::string&>())
             : std::string_view{};
}

EventCategory category_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, EventCategory>, 8> categories{
      {{"cpu_op", EventCategory::op},
       {"user_annotation", EventCategory::annotation},
       {"gpu_user_annotation", EventCategory::device_annotation},
       {"cuda_runtime", EventCategory::runtime},
       {"cuda_driver", EventCategory::driver},
       {"kernel", EventCategory::work},
       {"gpu_memcpy", EventCategory::work},
       {"gpu_memset", EventCategory::work}}};
  const auto* const found = std::find_if(categories.begin(), categories.end(),
                                         [&](const auto& c) { return c.first == name; });
  return found == categories.end() ? EventCategory::other : found->second;
}

std::string shortened(std::string_view name) {
  if (name.size() <= longest_name) return std::string(name);
  std::size_t cut = longest_name;
  while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;  // of UTF-8
  return std::string(name.substr(0, cut)) + "...";
}

class Reader {
 public:
  KinetoEvents run(std::string_view text) {
    const Json rest = parse(text);
    if (rest.is_array())
      trace_.findings.add(shape, "The trace is a list of events, not an object with traceEvents.");
    else if (!rest.is_object() || !found_events_)
      trace_.findings.add(no_events, "The trace has no list traceEvents.");
    if (const Json* info = fields::member(rest, "distributedInfo"))
      trace_.has_rank = whole(fields::member(*info, "rank")).has_value();
    return std::move(trace_);
  }

 private:
  using What = Json::parse_event_t;
  enum class Part { other, events, devices, rank };  // members of the trace

  Json parse(std::string_view text) {
    if (const std::size_t zero = zero_byte(text); zero != std::string_view::npos)
      fail<DataError>("byte {}: is not JSON; copy it again", zero + 1);
    const auto take = [this](int depth, Json::parse_event_t what, Json& parsed) {
      return keeps(depth, what, parsed);
    };
    try {
      return parse_json<Json>(text, take);
    } catch (const Json::parse_error& error) {
      if (error.byte > text.size())
        fail<DataError>("ends after byte {}, within its JSON; copy it again", text.size());
      fail<DataError>("byte {}: is not JSON; copy it again", error.byte);
    } catch (const Json::exception&) {
      fail<DataError>("a number after event {} is out of range; copy it again", index_);
    }
  }

  // Each event is taken and dropped as soon as it is read: whole traces would take gigabytes. What
  // nobody asks for is not kept either: after each object, nlohmann's parser looks through all that
  // it has kept of the list or object around it.
  bool keeps(int depth, What what, const Json& parsed) {
    const bool starts = what == What::object_start || what == What::array_start;
    if (depth == 0) {
      is_list_ = what == What::array_start || is_list_;
      if (is_list_) part_ = Part::events;
      return true;
    }
    if (depth == 1 && !is_list_) {
      if (what == What::key) part_ = part_of(parsed);
      if (starts && (what == What::array_start) == (part_ == Part::rank)) part_ = Part::other;
      found_events_ = found_events_ || (starts && part_ == Part::events);
      return part_ != Part::other;
    }
    const int level = is_list_ ? depth - 1 : depth - 2;  // 0: an event, a device
    switch (part_) {
      case Part::other: return false;
      case Part::rank: return !starts && (what != What::key || parsed == "rank");
      case Part::events:
      case Part::devices: break;
    }
    if (level == 0) {
      is_args_ = false;
      if (what != What::object_start) taken(parsed);
      return what == What::object_start;
    }
    if (starts) return level == 1 && is_args_ && what == What::object_start;
    if (what != What::key) return true;
    if (level == 1) is_args_ = part_ == Part::events && parsed == "args";
    return is_read(parsed.get_ref<const std::string&>());
  }

  static Part part_of(const Json& key) {
    if (key == "traceEvents") return Part::events;
    if (key == "deviceProperties") return Part::devices;
    return key == "distributedInfo" ? Part::rank : Part::other;
  }

  // Of an event, its args and a device.
  static bool is_read(std::string_view key) {
    constexpr std::array<std::string_view, 14> read{
        "ph", "name", "cat",  "ts",     "dur",    "pid",         "tid",
        "id", "bp",   "args", "device", "stream", "correlation", "External id"};
    return std::find(read.begin(), read.end(), key) != read.end();
  }

  void taken(const Json& parsed) {
    if (part_ == Part::events) {
      event(parsed);
      ++index_;
    } else if (const auto id = whole(fields::member(parsed, "id"))) {
      trace_.described_devices.push_back(*id);
    }
  }

  void find(EventRule rule, std::string_view what, std::string_view name) {
    trace_.findings.add(
        rule, fmt::format("Event {}{} {}.", index_,
                          name.empty() ? "" : fmt::format(" ({})", shortened(name)), what));
  }

  void event(const Json& json) {
    if (!json.is_object()) return find(not_object, "is not an object", "");
    const std::string_view phase = text_of(json, "ph"), name = text_of(json, "name");
    if (phase.empty()) return find(no_phase, "has no phase (ph)", name);
    if (fields::member(json, "name") == nullptr || !fields::member(json, "name")->is_string())
      return find(no_name, "has no name, without which torch_tb_profiler stops", "");
    if (phase == "X") return slice(json, name);
    if ((phase == "s" || phase == "f") && text_of(json, "cat") == "ac2g")
      return arrow(json, phase[0]);
    if (phase == "M" && name == "thread_name")
      if (const Json* args = fields::member(json, "args"))
        trace_.thread_names[track_name(json)] = text_of(*args, "name");
  }

  void slice(const Json& json, std::string_view name) {
    const auto begin = ns_of(fields::member(json, "ts")),
               length = ns_of(fields::member(json, "dur"));
    if (!begin.has_value() || !length.has_value() || *length < 0)
      return find(no_time, "has no times (ts, and dur of at least 0)", name);
    const Json* category = fields::member(json, "cat");
    if (category == nullptr || !category->is_string())
      return find(no_category, "has no category (cat), without which torch_tb_profiler stops",
                  name);
    if (fields::member(json, "pid") == nullptr || fields::member(json, "tid") == nullptr)
      return find(no_track, "is of no process or thread (pid, tid)", name);
    // 2^53 ns in us: above it a double no longer distinguishes nanoseconds
    if (*begin > (std::int64_t{1} << 53))
      find(huge_time,
           "has a time that a double cannot hold to the nanosecond; count from "
           "baseTimeNanoseconds",
           name);
    TraceEvent event{.index = index_,
                     .begin_ns = *begin,
                     .end_ns = *begin + *length,
                     .name = id(name_ids_, trace_.names, name),
                     .track = id(track_ids_, trace_.tracks, track_name(json)),
                     .category = category_of(text_of(json, "cat")),
                     .phase = 'X',
                     .pid = whole(fields::member(json, "pid"))};
    if (const Json* args = fields::member(json, "args")) {
      event.device = whole(fields::member(*args, "device"));
      event.stream = whole(fields::member(*args, "stream"));
      event.correlation = whole(fields::member(*args, "correlation"));
      event.external_id = whole(fields::member(*args, "External id"));
    }
    trace_.events.push_back(event);
  }

  void arrow(const Json& json, char phase) {
    const auto at = ns_of(fields::member(json, "ts")), flow = whole(fields::member(json, "id"));
    if (!at.has_value() || !flow.has_value())
      return find(bad_flow, "is an arrow without a time or a number (ts, id)", "");
    trace_.events.push_back({.index = index_,
                             .begin_ns = *at,
                             .end_ns = *at,
                             .phase = phase,
                             .binds_enclosing = text_of(json, "bp") == "e",
                             .flow = flow});
  }

  // Numbers and texts; anything else is no name of a track, and may be nested without end.
  static std::string track_part(const Json* value) {
    return value == nullptr || !value->is_primitive() ? "?" : shortened(printed(*value));
  }

  static std::string track_name(const Json& json) {
    return fmt::format("pid {}, tid {}", track_part(fields::member(json, "pid")),
                       track_part(fields::member(json, "tid")));
  }

  static std::uint32_t id(std::unordered_map<std::string, std::uint32_t>& ids,
                          std::vector<std::string>& texts, std::string_view text) {
    const auto [found, is_new] =
        ids.try_emplace(std::string(text), static_cast<std::uint32_t>(texts.size()));
    if (is_new) texts.emplace_back(text);
    return found->second;
  }

  KinetoEvents trace_;
  std::unordered_map<std::string, std::uint32_t> name_ids_, track_ids_;
  std::size_t index_ = 0;
  Part part_ = Part::other;
  bool is_list_ = false, is_args_ = false, found_events_ = false;
};

}  // namespace

std::vector<std::string> Findings::sentences() const {
  std::vector<std::string> all;
  for (const auto& [rule, found] : by_rule_)
    all.push_back(found.second == 0
                      ? found.first
                      : fmt::format("{} (So {} more.)", found.first,
                                    found.second == 1 ? std::string("is one")
                                                      : fmt::format("are {}", found.second)));
  return all;
}

std::string KinetoEvents::described(const TraceEvent& event) const {
  if (event.phase != 'X') return fmt::format("event {}", event.index);
  return fmt::format("event {} ({})", event.index, shortened(names[event.name]));
}

KinetoEvents read_kineto(std::string_view json) {
  return Reader().run(json);
}

}  // namespace warpstep::profiler

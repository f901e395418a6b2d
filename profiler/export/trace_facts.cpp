#include "profiler/export/trace_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "profiler/analysis/fields.h"

namespace warpstep::profiler {
namespace {

std::string text_or_none(const Json* text) {
  return text != nullptr && text->is_string() ? text->get<std::string>() : std::string{};
}

std::uint32_t trainer_of(const Session& session) {
  for (std::uint32_t i = 0; i < session.threads.size(); ++i)
    if (session.threads[i].name == "main") return i;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::wait || session.kind(span) == Kind::call) return span.thread;
  return 0;
}

std::uint32_t pid_of(const Session& session, std::uint32_t trainer_id) {
  const Json* stamped = fields::member(fields::child(session.stamp, "profiler"), "pid");
  const std::uint64_t pid = stamped != nullptr && stamped->is_number_integer()
                                ? stamped->get<std::uint32_t>()
                                : trainer_id;
  // Readers tell devices from processes by this number, so that it must be no device's.
  for (const Device& device : session.devices)
    if (pid == device.id) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::uint32_t>(pid);
}

// CUpti_ActivityMemoryKind
std::string_view memory_name(std::uint8_t kind) {
  constexpr std::array<std::string_view, 8> names{"Unknown",       "Pageable",      "Pinned",
                                                  "Device",        "Array",         "Managed",
                                                  "Device Static", "Managed Static"};
  return kind < names.size() ? names[kind] : names[0];
}
// CUpti_ActivityMemcpyKind
std::string_view copy_name(std::uint8_t kind) {
  constexpr std::array<std::string_view, 11> names{"",     "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                   "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < names.size() ? names[kind] : names[0];
}

}  // namespace

TraceFacts trace_facts(const Session& session) {
  TraceFacts facts;
  facts.trainer = trainer_of(session);
  facts.trainer_id = session.threads.empty() ? 1 : session.threads[facts.trainer].system;
  facts.pid = pid_of(session, facts.trainer_id);
  const Json* host = fields::member(session.stamp, "host");
  facts.host =
      text_or_none(host != nullptr && host->is_object() ? fields::member(*host, "name") : host);
  for (char& c : facts.host)  // it becomes part of a file's name
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  if (facts.host.empty()) facts.host = "host";
  facts.base_ns = earliest_ns(session);
  if (!session.clocks.empty())
    facts.realtime_offset_ns = static_cast<std::int64_t>(session.clocks.front().realtime_ns -
                                                         session.clocks.front().monotonic_ns);
  return facts;
}

bool in_complete_window(const Session& session, const Step& step) {
  return std::any_of(session.windows.begin(), session.windows.end(), [&](const Window& window) {
    return window.complete != 0 && window.first_step <= step.step && step.step <= window.last_step;
  });
}

std::string activity_name(const Session& session, const Activity& activity) {
  const std::string_view copy = copy_name(activity.copy_kind);
  if (activity.what == What::copy && !copy.empty())
    return fmt::format("Memcpy {} ({} -> {})", copy, memory_name(activity.source_memory),
                       memory_name(activity.target_memory));
  return session.name(activity.name);
}

std::string call_title(const Session& session, std::uint64_t index) {
  const Json* calls = fields::member(session.program, "calls");
  if (calls == nullptr || !calls->is_array() || index >= calls->size()) return {};
  return text_or_none(fields::member((*calls)[index], "title"));
}

std::string counter_name(const Session& session, const Span& counter) {
  const std::string& name = session.name(counter.name);
  return name.starts_with("worker ") ? session.threads[counter.thread].name + ": " + name : name;
}

}  // namespace warpstep::profiler

// XSpace, the protobuf of XLA's profiler, which xprof and TensorBoard's profile plugin open.
// Numbers of fields are those of tsl/profiler/protobuf/xplane.proto.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"
#include "profiler/export/protobuf.h"

namespace warpstep::profiler {
namespace {

struct XSpaceField {
  static constexpr std::uint32_t planes = 1, host_names = 4;
};
struct PlaneField {
  static constexpr std::uint32_t id = 1, name = 2, lines = 3, event_metadata = 4, stat_metadata = 5,
                                 stats = 6;
};
struct LineField {
  static constexpr std::uint32_t id = 1, name = 2, timestamp_ns = 3, events = 4;
};
struct PlaneEventField {
  static constexpr std::uint32_t metadata_id = 1, offset_ps = 2, duration_ps = 3, stats = 4;
};
struct StatField {
  static constexpr std::uint32_t metadata_id = 1, uint64_value = 3, int64_value = 4, text = 5;
};
constexpr std::uint32_t metadata_id = 1, metadata_name = 2, map_key = 1, map_value = 2;

struct PlaneEvent {
  std::uint64_t begin_ns = 0, end_ns = 0, name = 0;  // of the plane's names
  ProtoMessage stats;                                // fields of XEvent
};

// A plane: lines of events, with its own numbers for names of events and stats.
class Plane {
 public:
  Plane(std::uint64_t id, std::string_view name) {
    message_.varint(PlaneField::id, id).text(PlaneField::name, name);
  }

  ProtoMessage number(std::string_view stat, std::uint64_t value) {
    return with(ProtoMessage().varint(StatField::metadata_id, id_of(stats_, stat)),
                StatField::int64_value, value);
  }
  ProtoMessage words(std::string_view stat, std::string_view value) {
    ProtoMessage message = ProtoMessage().varint(StatField::metadata_id, id_of(stats_, stat));
    message.text(StatField::text, value);
    return ProtoMessage().message(PlaneEventField::stats, message);
  }
  // Of the plane itself.
  void set(std::string_view stat, std::uint64_t value) {
    message_.message(PlaneField::stats, ProtoMessage()
                                            .varint(StatField::metadata_id, id_of(stats_, stat))
                                            .varint(StatField::uint64_value, value));
  }

  void name_line(std::uint32_t line, std::string name) { lines_[line].first = std::move(name); }
  void add(std::uint32_t line, std::uint64_t begin_ns, std::uint64_t end_ns, std::string_view name,
           ProtoMessage stats = {}) {
    lines_[line].second.push_back({begin_ns, end_ns, id_of(names_, name), std::move(stats)});
  }

  // Times are counted from `base_ns`, at which the wall clock shows `wall_ns`.
  ProtoMessage finish(std::uint64_t base_ns, std::uint64_t wall_ns) {
    for (auto& [id, line] : lines_) {
      auto& [name, events] = line;
      std::ranges::stable_sort(events,
                               [](const auto& a, const auto& b) { return begins_outside(a, b); });
      ProtoMessage message;
      message.varint(LineField::id, id)
          .text(LineField::name, name)
          .varint(LineField::timestamp_ns, wall_ns);
      for (const PlaneEvent& event : events)
        message.message(
            LineField::events,
            ProtoMessage()
                .varint(PlaneEventField::metadata_id, event.name)
                .varint(PlaneEventField::offset_ps, (event.begin_ns - base_ns) * 1000)
                .varint(PlaneEventField::duration_ps, (event.end_ns - event.begin_ns) * 1000)
                .fields(event.stats));
      message_.message(PlaneField::lines, message);
    }
    add_metadata(PlaneField::event_metadata, names_);
    add_metadata(PlaneField::stat_metadata, stats_);
    return std::move(message_);
  }

 private:
  using Ids = std::map<std::string, std::uint64_t, std::less<>>;

  static ProtoMessage with(ProtoMessage stat, std::uint32_t field, std::uint64_t value) {
    return ProtoMessage().message(PlaneEventField::stats, stat.varint(field, value));
  }
  static std::uint64_t id_of(Ids& ids, std::string_view name) {
    const auto found = ids.find(name);
    return found != ids.end() ? found->second
                              : ids.emplace(name, ids.size() + 1).first->second;  // 0 is none
  }
  void add_metadata(std::uint32_t field, const Ids& ids) {
    for (const auto& [name, id] : ids)
      message_.message(
          field, ProtoMessage()
                     .varint(map_key, id)
                     .message(map_value,
                              ProtoMessage().varint(metadata_id, id).text(metadata_name, name)));
  }

  ProtoMessage message_;
  std::map<std::uint32_t, std::pair<std::string, std::vector<PlaneEvent>>> lines_;
  Ids names_, stats_;
};

class SpaceBuilder {
 public:
  explicit SpaceBuilder(const Session& session)
      : session_(session),
        view_(session),
        facts_(trace_facts(session)),
        plan_(plan_launches(session, facts_, true)),
        recorded_(step_numbers(complete_windows(session))) {}

  std::string run() {
    for (const Thread& thread : session_.threads) host_.name_line(thread.system, thread.name);
    add_steps();
    for (const Span& span : session_.spans) add_span(span);
    for (const HostCall& call : plan_.calls)
      host_.add(call.thread, call.begin_ns, call.end_ns, call.name,
                host_.number("correlation_id", call.correlation));
    const std::uint64_t wall_ns = facts_.realtime_ns(facts_.base_ns);
    ProtoMessage space;
    for (const Device& device : session_.devices)
      space.message(XSpaceField::planes, device_plane(device, wall_ns));
    space.message(XSpaceField::planes, host_.finish(facts_.base_ns, wall_ns));
    space.text(XSpaceField::host_names, facts_.host);
    return space.bytes();
  }

 private:
  bool is_shown(const Step& step) const {
    return session_.windows.empty() || recorded_.has(step.step);
  }

  bool has_spans() const {
    return std::ranges::any_of(session_.spans, [this](const Span& span) {
      const Kind kind = session_.kind(span);
      return kind != Kind::mark && kind != Kind::counter;
    });
  }

  // A step is what xprof knows as one: an event "train" with a number, marked as a root of others.
  void add_steps() {
    const bool only_parts = !has_spans();
    for (const Step& step : session_.steps) {
      if (!is_shown(step)) continue;
      ProtoMessage stats = host_.number("step_num", step.step);
      host_.add(facts_.trainer_id, step.begin_ns, step.end_ns, "train",
                stats.fields(host_.number("_r", 1)));
      if (only_parts) add_parts(step);
    }
  }

  // xprof takes the steps of a GPU from its plane, where they would else begin with their first
  // kernel. Its groups are the roots of add_steps(), numbered from 0.
  void add_device_steps(Plane& plane) const {
    constexpr std::uint32_t line = 2'000'000'000;  // no stream's
    plane.name_line(line, "Steps");
    std::uint64_t group = 0;
    for (const Step& step : session_.steps) {
      if (!is_shown(step)) continue;
      plane.add(line, step.begin_ns, step.end_ns, std::to_string(step.step),
                plane.number("group_id", group++));
    }
  }

  // "MemcpyHtoD (Pinned -> Device)": xprof knows copies by names without a space.
  static std::string device_title(const std::string& name) {
    return name.starts_with("Memcpy ") ? "Memcpy" + name.substr(7) : name;
  }

  // Without spans the parts of a step are known, but not their order: one after the other.
  void add_parts(const Step& step) {
    std::uint64_t begin = step.begin_ns;
    for (const auto& [name, ns] : {std::pair{"IteratorGetNext", step.data_ns},
                                   {"copies", step.copies_ns},
                                   {"kernels", step.kernels_ns},
                                   {"cpu", step.cpu_ns}}) {
      const std::uint64_t end = std::min(begin + ns, step.end_ns);
      if (end > begin) host_.add(facts_.trainer_id, begin, end, name);
      begin = end;
    }
  }

  void add_span(const Span& span) {
    const Kind kind = session_.kind(span);
    if (kind == Kind::mark || kind == Kind::counter) return;
    host_.add(session_.threads[span.thread].system, span.begin_ns, span.end_ns, title(span, kind));
  }

  // xprof tells waits for input, reading and preprocessing apart by the names of tf.data, and ops
  // by "NAME:Type".
  std::string title(const Span& span, Kind kind) const {
    const std::string& name = session_.name(span.name);
    switch (kind) {
      case Kind::wait: return "IteratorGetNext";
      case Kind::sample: return "Iterator::Prefetch";
      case Kind::stage:
        return name == "read" ? "Iterator::Prefetch::read::TFRecord"
                              : "Iterator::Prefetch::ParallelMap::" + name;
      case Kind::call: return name + ":" + type_of(span.arg);
      default: return name;
    }
  }

  // "SoftmaxXent": types of TensorFlow's ops have no underscores, and begin with a capital.
  std::string type_of(std::uint64_t call) const {
    const std::string op = call < view_.program.size() ? view_.program[call].op : std::string();
    std::string type;
    bool begins_word = true;
    for (const char c : op) {
      const bool is_letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
      if (is_letter)
        type += static_cast<char>(begins_word ? std::toupper(static_cast<unsigned char>(c)) : c);
      begins_word = !is_letter;
    }
    return type.empty() || std::isdigit(static_cast<unsigned char>(type[0])) != 0 ? "Op" + type
                                                                                  : type;
  }

  ProtoMessage device_plane(const Device& device, std::uint64_t wall_ns) {
    Plane plane(device.id + 1, fmt::format("/device:GPU:{}", device.id));
    plane.set("compute_cap_major", device.compute_major);
    plane.set("compute_cap_minor", device.compute_minor);
    plane.set("core_count", device.multiprocessors);
    plane.set("memory_size", device.total_memory);
    add_device_steps(plane);
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      if (plan_.correlations[i] == 0 || activity.device != device.id) continue;
      const std::uint32_t stream = stream_of(activity);
      plane.name_line(stream, fmt::format("Stream #{}", stream));
      ProtoMessage stats = plane.number("correlation_id", plan_.correlations[i]);
      if (activity.what == What::copy || activity.what == What::set)
        stats.fields(plane.words("memcpy_details", fmt::format("size:{}", activity.bytes)));
      else
        stats.fields(plane.words(
            "kernel_details",
            fmt::format("regs:{} static_shared:{} dynamic_shared:{} grid:{} block:{}",
                        activity.registers, activity.smem_static, activity.smem_dynamic,
                        fmt::join(activity.grid, ","), fmt::join(activity.block, ","))));
      plane.add(stream, activity.start_ns, activity.end_ns,
                device_title(session_.name(activity.name)), std::move(stats));
    }
    return plane.finish(facts_.base_ns, wall_ns);
  }

  const Session& session_;
  View view_;
  TraceFacts facts_;
  LaunchPlan plan_;
  IntervalSet recorded_;  // steps, by number
  Plane host_{1000, "/host:CPU"};
};

}  // namespace

std::string xplane_space(const Session& session) {
  return SpaceBuilder(session).run();
}

std::string xplane_name(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  const auto seconds = static_cast<std::time_t>(facts.realtime_ns(facts.base_ns) / 1'000'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("plugins/profile/{}_{:02}_{:02}_{:02}_{:02}_{:02}/{}.xplane.pb",
                     utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                     utc.tm_sec, facts.host);
}

}  // namespace warpstep::profiler

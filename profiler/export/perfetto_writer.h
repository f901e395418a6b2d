// Packets of a Perfetto trace: names are interned as they come, and stand before all else in the
// end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "profiler/export/protobuf.h"

namespace warpstep::profiler::perfetto {

// Numbers of Perfetto's messages that a trace of ours has, as its published .proto files give them
// (protos/perfetto/trace; checked against version 58).

using Field = std::uint32_t;

constexpr Field trace_packet = 1;

namespace packet {
constexpr Field clock_snapshot = 6, timestamp = 8, sequence_id = 10, track_event = 11,
                interned_data = 12, sequence_flags = 13, render_stage = 53, clock_id = 58,
                track_descriptor = 60, first_on_sequence = 87, gpu_info = 128;
constexpr std::uint64_t state_cleared = 1, needs_state = 2;  // of sequence_flags
}  // namespace packet

namespace clocks {
constexpr Field clock = 1, primary = 2, id = 1, timestamp = 2;
constexpr std::uint64_t realtime = 1, monotonic = 3;
}  // namespace clocks

namespace track {
constexpr Field uuid = 1, name = 2, process = 3, thread = 4, parent = 5, counter = 8,
                child_ordering = 11, rank = 12;
constexpr Field process_pid = 1, process_name = 6, thread_pid = 1, thread_tid = 2, thread_name = 5;
constexpr std::uint64_t explicit_order = 3;  // of child_ordering: by rank
constexpr Field counter_unit_name = 6;
}  // namespace track

namespace event {
constexpr Field category_iid = 3, annotation = 4, type = 9, name_iid = 10, track_uuid = 11,
                name = 23, counter = 30, counter_double = 44, flow = 47, terminating_flow = 48,
                gpu_correlation = 3000;
constexpr std::uint64_t begin = 1, end = 2, instant = 3, counter_value = 4;  // of type
constexpr Field annotation_name_iid = 1, annotation_uint = 3, annotation_double = 5,
                annotation_text = 6;
constexpr Field submitted_stage = 1;  // of gpu_correlation
}  // namespace event

namespace interned {
constexpr Field categories = 1, event_names = 2, annotation_names = 3, graphics_contexts = 23,
                gpu_specifications = 24, kernels = 1000, kernel_args = 1001;
constexpr Field iid = 1, name = 2;  // of each
constexpr Field context_pid = 2, context_api = 3, specification_category = 4;
constexpr Field kernel_architecture = 4;
constexpr std::uint64_t cuda = 4, compute = 2;
}  // namespace interned

namespace stage {
constexpr Field event_id = 1, duration = 2, context = 5, extra_data = 6, gpu_id = 11,
                queue_iid = 13, stage_iid = 14, kernel_iid = 19, name_iid = 20, launch = 21;
constexpr Field launch_grid = 1, launch_block = 2, launch_arg = 3;
constexpr Field arg_name_iid = 1, arg_uint = 4, arg_double = 5;
constexpr Field extra_name = 1, extra_value = 2;
}  // namespace stage

namespace gpu {
constexpr Field gpu = 1, name = 1, vendor = 2, architecture = 4;
}

// Texts numbered from 1 in the order in which they are first asked for.
class Interned {
 public:
  explicit Interned(Field field) : field_(field) {}

  std::uint64_t operator()(std::string_view text) { return add(text, {}); }
  // `more`: further fields of the entry, when it is new.
  std::uint64_t add(std::string_view text, const ProtoMessage& more) {
    const auto [found, is_new] = ids_.try_emplace(std::string(text), ids_.size() + 1);
    if (is_new) {
      ProtoMessage entry = more;
      entry.varint(interned::iid, found->second).text(interned::name, text);
      entries_.message(field_, entry);
    }
    return found->second;
  }
  const ProtoMessage& entries() const { return entries_; }

 private:
  Field field_;
  std::map<std::string, std::uint64_t, std::less<>> ids_;
  ProtoMessage entries_;
};

class Packets {
 public:
  Packets(std::uint64_t clock, std::uint64_t offset_ns) : clock_(clock), offset_ns_(offset_ns) {}

  Interned categories{interned::categories}, names{interned::event_names},
      annotation_names{interned::annotation_names}, specifications{interned::gpu_specifications},
      kernels{interned::kernels}, kernel_args{interned::kernel_args};

  std::uint64_t time(std::uint64_t monotonic_ns) const { return monotonic_ns + offset_ns_; }

  // Before everything: clocks, contexts, tracks.
  void describe(ProtoMessage packet) {
    packet.varint(packet::sequence_id, 1);
    head_.message(trace_packet, packet);
  }
  // At a time, with names that are interned.
  void add(std::uint64_t monotonic_ns, Field field, const ProtoMessage& message) {
    ProtoMessage packet;
    packet.varint(packet::timestamp, time(monotonic_ns))
        .message(field, message)
        .varint(packet::sequence_id, 1)
        .varint(packet::sequence_flags, packet::needs_state)
        .varint(packet::clock_id, clock_);
    body_.message(trace_packet, packet);
  }

  // `contexts`: entries of InternedData that do not come from here.
  std::string trace(const ProtoMessage& contexts) const {
    ProtoMessage all;
    ProtoMessage first;
    const std::string data = contexts.bytes() + categories.entries().bytes() +
                             names.entries().bytes() + annotation_names.entries().bytes() +
                             specifications.entries().bytes() + kernels.entries().bytes() +
                             kernel_args.entries().bytes();
    first.text(packet::interned_data, data)
        .varint(packet::sequence_id, 1)
        .varint(packet::sequence_flags, packet::state_cleared)
        .varint(packet::first_on_sequence, 1);
    all.message(trace_packet, first);
    return all.bytes() + head_.bytes() + body_.bytes();
  }

 private:
  std::uint64_t clock_, offset_ns_;
  ProtoMessage head_, body_;
};

// Debug annotations of a TrackEvent.
class Annotations {
 public:
  explicit Annotations(Packets& packets) : packets_(packets) {}

  Annotations& add(std::string_view key, std::uint64_t value) {
    return put(key, ProtoMessage().varint(event::annotation_uint, value));
  }
  Annotations& add(std::string_view key, double value) {
    return put(key, ProtoMessage().float64(event::annotation_double, value));
  }
  Annotations& add(std::string_view key, std::string_view text) {
    return put(key, ProtoMessage().text(event::annotation_text, text));
  }
  const ProtoMessage& fields() const { return fields_; }

 private:
  Annotations& put(std::string_view key, ProtoMessage value) {
    value.varint(event::annotation_name_iid, packets_.annotation_names(key));
    fields_.message(event::annotation, value);
    return *this;
  }

  Packets& packets_;
  ProtoMessage fields_;
};

}  // namespace warpstep::profiler::perfetto

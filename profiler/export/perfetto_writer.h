// Packets of a Perfetto trace: names are interned as they come, and stand before all else in the
// end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "profiler/export/perfetto_ids.h"
#include "profiler/export/protobuf.h"

namespace warpstep::profiler::perfetto {

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

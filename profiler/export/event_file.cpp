#include "profiler/export/event_file.h"

#include <fmt/format.h>

#include "engine/core/checksum.h"
#include "profiler/export/protobuf.h"

namespace warpstep::profiler {
namespace {

// Of tensorflow/core/util/event.proto and framework/summary.proto.
struct EventField {
  static constexpr std::uint32_t wall_time = 1, step = 2, file_version = 3, summary = 5,
                                 session_log = 7;
};
constexpr std::uint32_t summary_value = 1, value_tag = 1, value_simple = 2;
constexpr std::uint32_t session_status = 1, status_start = 1;

void append_little_endian(std::string& file, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
}

ProtoMessage event_at(double wall_time, std::uint64_t step) {
  ProtoMessage event;
  event.float64(EventField::wall_time, wall_time).varint(EventField::step, step);
  return event;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::uint32_t crc = crc32c(std::span(data, bytes.size()));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::string tfrecord(std::string_view message) {
  std::string record;
  record.reserve(message.size() + 16);
  append_little_endian(record, message.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += message;
  append_little_endian(record, masked_crc32c(message), 4);
  return record;
}

std::string version_event(double wall_time) {
  ProtoMessage version;
  version.float64(EventField::wall_time, wall_time).text(EventField::file_version, "brain.Event:2");
  return tfrecord(version.bytes());
}

std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  ProtoMessage summary;
  for (const Scalar& scalar : scalars) {
    ProtoMessage value;
    value.text(value_tag, scalar.tag).float32(value_simple, static_cast<float>(scalar.value));
    summary.message(summary_value, value);
  }
  return tfrecord(event_at(wall_time, step).message(EventField::summary, summary).bytes());
}

std::string restart_event(double wall_time, std::uint64_t step) {
  ProtoMessage log;
  log.varint(session_status, status_start);
  return tfrecord(event_at(wall_time, step).message(EventField::session_log, log).bytes());
}

std::string event_file_name(std::uint64_t seconds, std::string_view host) {
  std::string name = fmt::format("{}{:010}.", event_file_prefix, seconds);
  for (const char c : host.empty() ? std::string_view("host") : host)
    name.push_back((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '.' || c == '-' || c == '_'
                       ? c
                       : '_');
  return name;
}

}  // namespace warpstep::profiler

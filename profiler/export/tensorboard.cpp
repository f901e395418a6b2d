#include <fmt/format.h>

#include <span>

#include "engine/core/checksum.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"
#include "profiler/export/protobuf.h"

namespace warpstep::profiler {
namespace {

void append_little_endian(std::string& file, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::uint32_t crc = crc32c(std::span(data, bytes.size()));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

void append_tfrecord(std::string& file, std::string_view record) {
  std::string length;
  append_little_endian(length, record.size(), 8);
  file += length;
  append_little_endian(file, masked_crc32c(length), 4);
  file += record;
  append_little_endian(file, masked_crc32c(record), 4);
}

namespace {

// Of tensorflow/core/util/event.proto and framework/summary.proto.
struct Event {
  static constexpr std::uint32_t wall_time = 1, step = 2, file_version = 3, summary = 5;
};
constexpr std::uint32_t summary_value = 1, value_tag = 1, value_simple = 2;

double seconds(const TraceFacts& facts, std::uint64_t monotonic_ns) {
  return static_cast<double>(facts.realtime_ns(monotonic_ns)) / 1e9;
}

double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

ProtoMessage step_summary(const Step& step) {
  ProtoMessage summary;
  const auto add = [&summary](std::string_view tag, double value) {
    ProtoMessage scalar;
    scalar.text(value_tag, tag).float32(value_simple, static_cast<float>(value));
    summary.message(summary_value, scalar);
  };
  add("train/loss", step.loss);
  if (step.samples > 0)
    add("train/accuracy", static_cast<double>(step.correct) / static_cast<double>(step.samples));
  add("train/learning_rate", step.learning_rate);
  add("step/time_ms", ms(step.end_ns - step.begin_ns));
  add("step/data_ms", ms(step.data_ns));
  add("step/kernels_ms", ms(step.kernels_ns));
  add("step/copies_ms", ms(step.copies_ns));
  add("step/cpu_ms", ms(step.cpu_ns));
  add("step/other_ms", ms(step.other_ns));
  return summary;
}

}  // namespace

std::string tensorboard_events(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  std::string file;
  ProtoMessage version;
  version.float64(Event::wall_time, seconds(facts, facts.base_ns))
      .text(Event::file_version, "brain.Event:2");
  append_tfrecord(file, version.bytes());
  for (const Step& step : session.steps) {
    ProtoMessage event;
    event.float64(Event::wall_time, seconds(facts, step.end_ns))
        .varint(Event::step, step.step)
        .message(Event::summary, step_summary(step));
    append_tfrecord(file, event.bytes());
  }
  return file;
}

std::string tensorboard_name(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  return fmt::format("events.out.tfevents.{}.{}", facts.realtime_ns(facts.base_ns) / 1'000'000'000,
                     facts.host);
}

}  // namespace warpstep::profiler

// TensorBoard's event files: records (a length, its checksum, a protobuf message, its checksum), of
// which each is an event with a wall time and a step. All functions return whole records, so that a
// writer which appends them one by one leaves a valid file at any moment.
// https://www.tensorflow.org/tutorials/load_data/tfrecord and tensorflow/core/util/event.proto
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace warpstep::profiler {

struct Scalar {
  std::string tag;
  double value = 0;  // TensorBoard keeps scalars in 32 bits
};

// Wall times are in seconds since 1970.
std::string version_event(double wall_time);  // the first record of a file
std::string scalars_event(double wall_time, std::uint64_t step, std::span<const Scalar> scalars);
// A resumed run: readers discard all events of earlier files from `step` on, because these steps
// run again.
std::string restart_event(double wall_time, std::uint64_t step);

// "events.out.tfevents.1700000000.host". TensorBoard reads the files of a folder in the order of
// their names; characters that do not belong into a file's name become '_'.
std::string event_file_name(std::uint64_t seconds, std::string_view host);
inline constexpr std::string_view event_file_prefix = "events.out.tfevents.";

std::uint32_t masked_crc32c(std::string_view bytes);  // CRC32C, rotated and shifted for the file
std::string tfrecord(std::string_view message);

}  // namespace warpstep::profiler

// TensorFlow's file of records, which TensorBoard reads: a length, its checksum, the bytes, theirs.
// https://www.tensorflow.org/tutorials/load_data/tfrecord
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace warpstep::profiler {

std::uint32_t crc32c(std::string_view bytes);         // Castagnoli's polynomial (RFC 3720, B.4)
std::uint32_t masked_crc32c(std::string_view bytes);  // rotated and shifted, as the file has it

void append_tfrecord(std::string& file, std::string_view record);

}  // namespace warpstep::profiler

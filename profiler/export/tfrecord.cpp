#include "profiler/export/tfrecord.h"

#include <array>

namespace warpstep::profiler {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82F63B78U : 0U);
    table[byte] = rest;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> table = make_table();

void append_little_endian(std::string& file, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes)
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
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

}  // namespace warpstep::profiler

#include "profiler/session/chunk.h"

#include <zlib.h>

#include <algorithm>

namespace warpstep::profiler {

std::uint32_t checksum(std::span<const std::byte> bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in unsigned int
  uLong crc = crc32(0, nullptr, 0);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = std::min(most, bytes.size() - at);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at), static_cast<uInt>(count));
    at += count;
  }
  return static_cast<std::uint32_t>(crc);
}

std::uint32_t header_checksum(const ChunkHeader& header) {
  return checksum(
      std::as_bytes(std::span(&header, 1)).first(sizeof header - sizeof header.header_crc));
}

Json names_json(std::span<const Name> names) {
  Json json = Json::array();
  for (const Name& name : names) json.push_back({name.text, static_cast<int>(name.kind)});
  return json;
}

Json threads_json(std::span<const Thread> threads) {
  Json json = Json::array();
  for (const Thread& thread : threads) json.push_back({thread.system, thread.name});
  return json;
}

}  // namespace warpstep::profiler

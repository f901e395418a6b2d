// The frame of a session file's chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

inline constexpr int session_schema = 1;

struct ChunkHeader {
  std::uint32_t magic = 0x4B435057;  // "WPCK"
  std::uint32_t type = 0;
  std::uint32_t id = 0;  // counted from 0
  std::uint32_t record_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;        // of the payload, which follows
  std::uint32_t payload_crc = 0;  // CRC-32
  std::uint32_t header_crc = 0;   // of the 36 bytes before
};
static_assert(sizeof(ChunkHeader) == 40);

std::uint32_t checksum(std::span<const std::byte> bytes);
std::uint32_t header_checksum(const ChunkHeader& header);

Json names_json(std::span<const Name> names);
Json threads_json(std::span<const Thread> threads);

}  // namespace warpstep::profiler

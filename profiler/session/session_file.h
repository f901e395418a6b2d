// The session file and its writer (session.h declares the reader). A file is a sequence of chunks,
// each a header and a payload with checksums, so that all that was written stays readable whatever
// happens next. Readers skip types that they do not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

inline constexpr int session_schema = 1;

struct ChunkHeader {
  std::uint32_t magic = 0x4B435057;  // "WPCK"
  std::uint32_t type = 0;
  std::uint32_t id = 0;            // counted from 0
  std::uint32_t record_bytes = 0;  // of one record
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;        // of the payload, which follows
  std::uint32_t payload_crc = 0;  // CRC-32
  std::uint32_t header_crc = 0;   // CRC-32 of the 36 bytes before
};
static_assert(sizeof(ChunkHeader) == 40);

std::uint32_t checksum(std::span<const std::byte> bytes);  // CRC-32
std::uint32_t header_checksum(const ChunkHeader& header);
// The header with the size of this payload and both checksums.
ChunkHeader chunk_header(ChunkHeader header, std::span<const std::byte> payload);

// The type of a chunk.
enum class Chunk : std::uint32_t {
  header = 1,  // JSON: {"schema": 1}
  stamp,
  program,
  loader,
  peaks,
  note,  // JSON, or text
  names,
  threads,  // JSON arrays; appended to those before
  devices,
  steps,
  windows,
  spans,
  activities,
  samples,
  clocks,
  losses = 17,  // a record; the last one counts. 16: older files' calls of graph nodes
  peer_clocks,  // records
  phases = 32,  // records
  kept,
  past,    // records: spans of slow steps
  opened,  // a Window that begins: `windows` has it again once it has ended
};

Json names_json(std::span<const Name> names);
Json threads_json(std::span<const Thread> threads);

class SessionWriter {
 public:
  // Creates the file; replaces a file or link of that name. Throws DataError that names it.
  explicit SessionWriter(std::filesystem::path path);
  ~SessionWriter();
  SessionWriter(const SessionWriter&) = delete;
  SessionWriter& operator=(const SessionWriter&) = delete;

  // Each writes one chunk. Throws DataError when it cannot be written completely (a full disk):
  // earlier chunks stay readable, and this writer accepts no more.
  void write(Chunk type, const Json& json);
  void write(Chunk type, std::string_view text);
  // Names or threads, of which `first` were written before.
  void write_list(Chunk type, std::size_t first, const Json& json);
  template <class Record>
  void write(Chunk type, std::span<const Record> records) {
    static_assert(std::is_trivially_copyable_v<Record>);
    if (!records.empty()) append(type, sizeof(Record), records.size(), std::as_bytes(records));
  }
  template <class Record>
  void write(Chunk type, const std::vector<Record>& records) {
    write(type, std::span<const Record>(records));
  }

  // Throws DataError if the system reports only now that bytes were lost.
  void flush();
  // Ends writing; throws as flush() does.
  void close();

  // Writes a session from memory.
  void write(const Session& session);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void append(Chunk type, std::size_t record_bytes, std::size_t count,
              std::span<const std::byte> payload);

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint32_t next_id_ = 0;
};

}  // namespace warpstep::profiler

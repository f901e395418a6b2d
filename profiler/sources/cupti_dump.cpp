#include "profiler/sources/cupti_dump.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/session/chunk.h"
#include "profiler/sources/cupti_dump_format.h"
#include "profiler/sources/cupti_graphs.h"

namespace warpstep::profiler {
namespace {

template <class Record>
std::span<const std::byte> bytes_of(const Record& record) {
  return std::as_bytes(std::span(&record, 1));
}

void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

DumpWriter::DumpWriter(std::filesystem::path path) : path_(std::move(path)) {
  file_ = create_file(path_);
  if (file_ < 0) fail<DataError>("{}: cannot be created: {}", path_.string(), std::strerror(errno));
  try {
    append(static_cast<std::uint32_t>(DumpChunk::layout), bytes_of(DumpLayout{}));
  } catch (...) {
    ::close(file_);
    throw;
  }
}

DumpWriter::~DumpWriter() {
  ::close(file_);
}

void DumpWriter::write(std::span<const DumpedText> texts) {
  if (texts.empty()) return;
  std::vector<std::byte> payload;
  for (const DumpedText& text : texts) {
    append_bytes(payload, bytes_of(DumpText{text.key, static_cast<std::uint32_t>(text.of),
                                            static_cast<std::uint32_t>(text.text.size())}));
    append_bytes(payload, std::as_bytes(std::span(text.text)));
  }
  append(static_cast<std::uint32_t>(DumpChunk::texts), payload);
}

void DumpWriter::write(std::span<const std::byte> buffer) {
  append(static_cast<std::uint32_t>(DumpChunk::buffer), buffer);
}

void DumpWriter::finish(const WindowFacts& facts) {
  append(static_cast<std::uint32_t>(DumpChunk::clocks), std::as_bytes(std::span(facts.clocks)));
  const std::vector<GraphNode> nodes = sorted_nodes(facts.calls);
  append(static_cast<std::uint32_t>(DumpChunk::nodes), std::as_bytes(std::span(nodes)));
  for (const std::string& note : facts.notes)
    append(static_cast<std::uint32_t>(DumpChunk::note), std::as_bytes(std::span(note)));
  append(static_cast<std::uint32_t>(DumpChunk::end), bytes_of(DumpEnd{facts.dropped}));
}

void DumpWriter::append(std::uint32_t type, std::span<const std::byte> payload) {
  ChunkHeader header;
  header.magic = dump_magic;
  header.type = type;
  header.id = next_id_;
  header.record_bytes = 1;
  header.count = header.bytes = payload.size();
  header.payload_crc = checksum(payload);
  header.header_crc = header_checksum(header);
  std::array<std::span<const std::byte>, 2> parts{bytes_of(header), payload};
  for (std::span<const std::byte>& part : parts)
    while (!part.empty()) {
      const ssize_t count = ::write(file_, part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        fail<DataError>("{}: {} bytes of device records cannot be written: {}", path_.string(),
                        payload.size(), std::strerror(count < 0 ? errno : ENOSPC));
      part = part.subspan(static_cast<std::size_t>(count));
    }
  ++next_id_;
}

}  // namespace warpstep::profiler

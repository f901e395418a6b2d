#include "profiler/session/session_writer.h"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/session/chunk.h"

namespace warpstep::profiler {

SessionWriter::SessionWriter(std::filesystem::path path) : path_(std::move(path)) {
  file_ = create_file(path_);
  if (file_ < 0)
    fail<DataError>("{}: cannot be written ({})", path_.string(), std::strerror(errno));
  write(Chunk::header, Json{{"schema", session_schema}});
}

SessionWriter::~SessionWriter() {
  if (file_ >= 0) ::close(file_);
}

void SessionWriter::close() {
  // After EINTR, Linux has closed it.
  if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0 && errno != EINTR)
    fail<DataError>("{}: cannot be closed ({}); its end may be missing", path_.string(),
                    std::strerror(errno));
}

void SessionWriter::write(Chunk type, const Json& json) {
  write(type, std::string_view(json.dump()));
}

void SessionWriter::write(Chunk type, std::string_view text) {
  append(type, 1, text.size(), std::as_bytes(std::span(text)));
}

void SessionWriter::append(Chunk type, std::size_t record_bytes, std::size_t count,
                           std::span<const std::byte> payload) {
  if (file_ < 0) fail<DataError>("{}: nothing is written after an error", path_.string());
  ChunkHeader header{.type = static_cast<std::uint32_t>(type),
                     .id = next_id_,
                     .record_bytes = static_cast<std::uint32_t>(record_bytes),
                     .count = count,
                     .bytes = payload.size(),
                     .payload_crc = checksum(payload)};
  header.header_crc = header_checksum(header);
  std::string whole(reinterpret_cast<const char*>(&header), sizeof header);
  whole.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  std::size_t done = 0;
  while (done < whole.size()) {
    const ssize_t now = ::write(file_, whole.data() + done, whole.size() - done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) {
      const std::string why = now < 0 ? std::strerror(errno) : "nothing was written";
      // A chunk that is half there would hide those of a later writer.
      [[maybe_unused]] const int cut = ::ftruncate(file_, static_cast<off_t>(bytes_));
      ::close(std::exchange(file_, -1));
      fail<DataError>("{}: writing failed ({}); what it has up to here can be read", path_.string(),
                      why);
    }
    done += static_cast<std::size_t>(now);
  }
  bytes_ += whole.size();
  ++next_id_;
}

void SessionWriter::write(const Session& session) {
  const auto object = [&](Chunk type, const Json& json) {
    if (!json.is_null()) write(type, json);
  };
  object(Chunk::stamp, session.stamp);
  object(Chunk::program, session.program);
  object(Chunk::loader, session.loader);
  object(Chunk::peaks, session.peaks);
  for (const std::string& note : session.notes) write(Chunk::note, std::string_view(note));
  write(Chunk::names, names_json(session.names));
  write(Chunk::threads, threads_json(session.threads));
  write(Chunk::devices, session.devices);
  write(Chunk::steps, session.steps);
  write(Chunk::windows, session.windows);
  write(Chunk::spans, session.spans);
  write(Chunk::activities, session.activities);
  write(Chunk::samples, session.samples);
  write(Chunk::clocks, session.clocks);
  write(Chunk::graph_nodes, session.graph_nodes);
  write(Chunk::peer_clocks, session.peer_clocks);
  write(Chunk::losses, std::vector{session.losses});
}

}  // namespace warpstep::profiler

#include "profiler/session/session_file.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"

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

ChunkHeader chunk_header(ChunkHeader header, std::span<const std::byte> payload) {
  header.bytes = payload.size();
  header.payload_crc = checksum(payload);
  header.header_crc = header_checksum(header);
  return header;
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

namespace {

constexpr std::uint64_t max_records = std::uint64_t{1} << 28;
constexpr std::size_t max_json_depth = 64;
constexpr std::size_t most_json = std::size_t{64} << 20;
constexpr std::size_t most_keys = 4096, most_compared = std::size_t{1} << 28;
constexpr std::size_t most_devices = 64;
// A chunk of names or threads has this plus the number of its first one as the size of a record.
constexpr std::uint32_t first_number = 2;
constexpr std::uint32_t most_names = 1U << 20;
constexpr std::size_t npos = std::string_view::npos;

class SessionReader {
 public:
  SessionReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Session run() {
    while (at_ < bytes_.size() && next()) {
    }
    if (next_id_ == 0) fail<DataError>("{}: is not a session file of warpstep", path_);
    lost_.cut_bytes = bytes_.size() - at_;
    drop_what_lost_its_name();
    cut_open_window();
    session_.losses.cut_bytes = lost_.cut_bytes;
    session_.losses.damaged_chunks = lost_.damaged_chunks;
    session_.losses.damaged_bytes = lost_.damaged_bytes;
    session_.losses.damaged_records = lost_.damaged_records;
    finish_session(session_, path_);
    refuse_impossible(session_, path_);
    return std::move(session_);
  }

 private:
  // False when the rest is a chunk that was being written when the process ended.
  bool next() {
    if (bytes_.size() - at_ < sizeof(ChunkHeader)) return false;
    const std::optional<ChunkHeader> header = header_at(at_);
    if (!header) return skip_to(next_valid(at_ + 1), bytes_.size());
    if (header->id < next_id_)
      fail<DataError>("{}: the chunk at byte {} has number {}, expected {}", path_, at_, header->id,
                      next_id_);
    if (header->id > next_id_) lose(header->id - next_id_, std::nullopt);
    next_id_ = header->id;
    const std::size_t begin = at_ + sizeof *header;
    if (header->bytes > bytes_.size() - begin) {
      const std::size_t later = next_valid(begin);
      return later != npos && skip_to(later, later);
    }
    const std::string_view payload = bytes_.substr(begin, header->bytes);
    if (checksum(std::as_bytes(std::span(payload))) == header->payload_crc) {
      take(*header, payload);
    } else {
      lose(1, static_cast<Chunk>(header->type));
      lost_.damaged_bytes += sizeof *header + payload.size();
    }
    at_ = begin + payload.size();
    ++next_id_;
    return true;
  }

  std::optional<ChunkHeader> header_at(std::size_t at) const {
    ChunkHeader header;
    if (bytes_.size() - at < sizeof header) return std::nullopt;
    std::memcpy(&header, bytes_.data() + at, sizeof header);
    if (header.magic != ChunkHeader{}.magic || header.header_crc != header_checksum(header))
      return std::nullopt;
    return header;
  }

  // The position of the next valid chunk that was written after this one.
  std::size_t next_valid(std::size_t from) const {
    const ChunkHeader sample;
    const std::string_view magic(reinterpret_cast<const char*>(&sample.magic), sizeof sample.magic);
    for (std::size_t at = bytes_.find(magic, from); at != npos; at = bytes_.find(magic, at + 1))
      if (const auto header = header_at(at); header && header->id > next_id_) return at;
    return npos;
  }

  // The chunk here has no valid header: continues at the next one, or else at `otherwise`.
  bool skip_to(std::size_t later, std::size_t otherwise) {
    if (next_id_ == 0 && later == npos)
      fail<DataError>("{}: is not a session file of warpstep, or nothing of it is intact", path_);
    const std::size_t to = later == npos ? otherwise : later;
    if (later == npos) lose(1, std::nullopt);  // else the next chunk's number gives the count
    lost_.damaged_bytes += to - at_;
    at_ = to;
    return true;
  }

  // Names and threads are numbered through all chunks: after a lost one, the numbers of later ones
  // are unknown in old files, whose chunks do not have them. The first chunk is the file's header.
  void lose(std::uint64_t chunks, std::optional<Chunk> type) {
    if (next_id_ == 0 && chunks == 1) type = Chunk::header;
    lost_.damaged_chunks += chunks;
    lost_names_ = lost_names_ || !type || type == Chunk::names;
    lost_threads_ = lost_threads_ || !type || type == Chunk::threads;
    lost_devices_ = lost_devices_ || !type || type == Chunk::devices;
    if (!type || type == Chunk::windows) open_.reset();  // its end may be what was lost
  }

  void take_windows(const ChunkHeader& header, std::string_view payload) {
    const std::size_t before = session_.windows.size();
    records(header, payload, session_.windows);
    for (std::size_t i = before; i < session_.windows.size() && open_; ++i)
      if (session_.windows[i].begin_ns == open_->begin_ns) open_.reset();
  }

  void take_opened(const ChunkHeader& header, std::string_view payload) {
    std::vector<Window> opened;
    records(header, payload, opened);
    if (opened.empty()) return;
    open_ = opened.back();
    whole_steps_ = 0;
  }

  // Steps are still in the order of the file, as `whole_steps_` counts them.
  void cut_open_window() {
    if (!open_) return;
    Window window = *open_;
    bool has_step = false;
    for (std::size_t i = 0; i < whole_steps_; ++i) {
      const Step& step = session_.steps[i];
      if (step.step < window.first_step || step.end_ns < window.begin_ns) continue;
      if (has_step && step.step < window.last_step) continue;
      window.last_step = step.step;
      window.end_ns = step.end_ns;
      has_step = true;
    }
    if (!has_step) return;
    window.cut = 1;
    // Beside windows with a device's work, steps without any would look like idle ones.
    window.complete = window.deep != 0 && !session_.activities.empty() ? 0 : 1;
    session_.windows.push_back(window);
  }

  void drop_what_lost_its_name() {
    const auto drop = [this](auto& records, auto is_lost) {
      lost_.damaged_records += std::erase_if(records, is_lost);
    };
    const auto unnamed = [this](const auto& record) {
      return record.name >= session_.names.size() ||
             (record.name < is_gap_.size() && is_gap_[record.name]);
    };
    if (lost_names_) {
      drop(session_.devices, unnamed);
      drop(session_.spans, unnamed);
      drop(session_.activities, unnamed);
      drop(session_.samples, unnamed);
      drop(session_.phases, unnamed);
      drop(session_.past, unnamed);
    }
    const auto threadless = [this](const Span& span) {
      return span.thread >= session_.threads.size() || session_.threads[span.thread].name.empty();
    };
    if (lost_threads_) {
      drop(session_.spans, threadless);
      drop(session_.past, threadless);
    }
    if (lost_devices_ || lost_names_)
      drop(session_.activities,
           [this](const Activity& activity) { return !has_device(session_, activity); });
  }

  void take(const ChunkHeader& header, std::string_view payload) {
    if (header.id == 0 && static_cast<Chunk>(header.type) != Chunk::header)
      fail<DataError>("{}: does not begin with a header", path_);
    switch (static_cast<Chunk>(header.type)) {
      case Chunk::header: return check_schema(parse(payload));
      case Chunk::stamp: session_.stamp = parse(payload); return;
      case Chunk::program: session_.program = parse(payload); return;
      case Chunk::loader: session_.loader = parse(payload); return;
      case Chunk::peaks: session_.peaks = parse(payload); return;
      case Chunk::note: session_.notes.push_back(utf8(payload)); return;
      case Chunk::names:
        if (lost_names_ && !has_first(header)) return lose(1, Chunk::names);
        if (lost_names_ && first_of(header) > session_.names.size()) {
          is_gap_.resize(session_.names.size());
          is_gap_.resize(first_of(header), true);
          session_.names.resize(first_of(header));
        }
        return take_names(parse(payload));
      case Chunk::threads:
        if (lost_threads_ && !has_first(header)) return lose(1, Chunk::threads);
        if (lost_threads_ && first_of(header) > session_.threads.size())
          session_.threads.resize(first_of(header));
        return take_threads(parse(payload));
      case Chunk::devices:
        records(header, payload, session_.devices);
        if (session_.devices.size() > most_devices) damaged("has more than 64 devices");
        return;
      case Chunk::steps: return records(header, payload, session_.steps);
      case Chunk::windows: return take_windows(header, payload);
      case Chunk::opened: return take_opened(header, payload);
      case Chunk::spans:
        // Spans are written after the steps that they are of.
        whole_steps_ = session_.steps.size();
        return records(header, payload, session_.spans);
      case Chunk::activities: return records(header, payload, session_.activities);
      case Chunk::samples: return records(header, payload, session_.samples);
      case Chunk::clocks: return records(header, payload, session_.clocks);
      case Chunk::peer_clocks: return records(header, payload, session_.peer_clocks);
      case Chunk::phases: return records(header, payload, session_.phases);
      case Chunk::kept: return records(header, payload, session_.kept);
      case Chunk::past: return records(header, payload, session_.past);
      case Chunk::losses: {
        std::vector<Losses> losses;
        records(header, payload, losses);
        if (!losses.empty()) session_.losses = losses.back();
        return;
      }
    }
    // Other types are from another version and are skipped.
  }

  static bool has_first(const ChunkHeader& header) {
    return header.record_bytes >= first_number && header.record_bytes - first_number < most_names;
  }
  static std::size_t first_of(const ChunkHeader& header) {
    return header.record_bytes - first_number;
  }

  Json parse(std::string_view text) const {
    if (text.size() > most_json) damaged("has more than 64 MiB of JSON");
    if (zero_byte(text) != std::string_view::npos) damaged("is not JSON");
    // Copying a deeper value would overflow the stack. Each key is compared with those of its
    // object.
    const JsonShape shape = json_shape(text, max_json_depth);
    if (shape.depth > max_json_depth) damaged("is nested too deeply");
    if (shape.most_keys > most_keys || shape.compared > most_compared)
      damaged("has an object with too many keys");
    Json json;
    try {
      json = parse_json<Json>(text, {});
    } catch (const Json::exception&) {
      json = Json(Json::value_t::discarded);
    }
    if (json.is_discarded()) damaged("is not JSON");
    return json;
  }

  void check_schema(const Json& json) const {
    const auto found = json.is_object() ? json.find("schema") : json.end();
    if (!json.is_object() || found == json.end() || !found->is_number_integer())
      damaged("has no schema");
    if (*found < 1) damaged("has no schema");
    if (*found > session_schema)
      fail<DataError>(
          "{}: was written by a later version of warpstep (schema {}, this one reads {})", path_,
          found->get<std::int64_t>(), session_schema);
  }

  void take_names(const Json& json) {
    if (!json.is_array()) damaged("is not a list");
    for (const Json& name : json) {
      if (!name.is_array() || name.size() != 2 || !name[0].is_string() ||
          !name[1].is_number_unsigned())
        damaged("has an invalid name");
      const auto kind = name[1].get<std::uint64_t>();
      if (kind > static_cast<std::uint64_t>(Kind::metric)) damaged("has a name of an invalid kind");
      session_.names.push_back({name[0].get<std::string>(), static_cast<Kind>(kind)});
    }
  }

  void take_threads(const Json& json) {
    if (!json.is_array()) damaged("is not a list");
    for (const Json& thread : json) {
      if (!thread.is_array() || thread.size() != 2 || !thread[0].is_number_unsigned() ||
          !thread[1].is_string())
        damaged("has an invalid thread");
      const auto system = thread[0].get<std::uint64_t>();
      if (system > std::numeric_limits<std::uint32_t>::max()) damaged("has an invalid thread");
      session_.threads.push_back(
          {static_cast<std::uint32_t>(system), thread[1].get<std::string>()});
    }
  }

  [[noreturn]] void damaged(const char* what) const {
    fail<DataError>("{}: the chunk at byte {} {}", path_, at_, what);
  }

  // Records of an earlier or later version may be shorter or longer: missing fields are 0. None
  // was ever shorter than half of today's, and a file of smaller ones would grow without limit.
  template <class Record>
  void records(const ChunkHeader& header, std::string_view payload, std::vector<Record>& to) {
    if (header.record_bytes == 0 || header.count > max_records ||
        header.count * header.record_bytes != payload.size())
      damaged("does not have the size of its records");
    if (2 * std::size_t{header.record_bytes} < sizeof(Record))
      damaged("has records that are too small: no version of warpstep wrote such");
    const std::size_t bytes = std::min<std::size_t>(header.record_bytes, sizeof(Record));
    const std::size_t first = to.size();
    to.resize(first + header.count);
    for (std::size_t i = 0; i < header.count; ++i)
      std::memcpy(static_cast<void*>(&to[first + i]), payload.data() + i * header.record_bytes,
                  bytes);
  }

  std::string_view bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::uint32_t next_id_ = 0;
  Losses lost_;
  std::vector<bool> is_gap_;  // names in lost chunks
  bool lost_names_ = false, lost_threads_ = false, lost_devices_ = false;
  std::optional<Window> open_;   // the window that has begun and not ended
  std::size_t whole_steps_ = 0;  // of Session::steps: those whose spans in it have been read
  Session session_;
};

}  // namespace

Session parse_session(std::string_view bytes, const std::string& path) {
  return SessionReader(bytes, path).run();
}

Session read_session(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))
    fail<DataError>(
        "{}: no such session file; a run writes RUN/session.prof unless it has --profile off",
        path.string());
  return parse_session(read_file(path), path.string());
}

SessionWriter::SessionWriter(std::filesystem::path path) : path_(std::move(path)) {
  file_ = create_file(path_);
  if (file_ < 0) fail<DataError>("{}: cannot write it ({})", path_.string(), std::strerror(errno));
  write(Chunk::header, Json{{"schema", session_schema}});
}

SessionWriter::~SessionWriter() {
  if (file_ >= 0) ::close(file_);
}

void SessionWriter::flush() {
  if (file_ < 0) return;
  // Network file systems report lost bytes when any descriptor of the file is closed.
  if (const int copy = ::dup(file_); copy >= 0 && ::close(copy) != 0 && errno != EINTR)
    fail<DataError>("{}: cannot flush it ({}); its end may be missing", path_.string(),
                    std::strerror(errno));
}

void SessionWriter::close() {
  // After EINTR, Linux has closed the file.
  if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0 && errno != EINTR)
    fail<DataError>("{}: cannot close it ({}); its end may be missing", path_.string(),
                    std::strerror(errno));
}

void SessionWriter::write(Chunk type, const Json& json) {
  write(type, std::string_view(printed(json)));
}

void SessionWriter::write_list(Chunk type, std::size_t first, const Json& json) {
  const std::string text = printed(json);
  append(type, first_number + std::min<std::size_t>(first, most_names), text.size(),
         std::as_bytes(std::span(text)));
}

void SessionWriter::write(Chunk type, std::string_view text) {
  append(type, 1, text.size(), std::as_bytes(std::span(text)));
}

void SessionWriter::append(Chunk type, std::size_t record_bytes, std::size_t count,
                           std::span<const std::byte> payload) {
  if (file_ < 0) fail<DataError>("{}: no more is written after an error", path_.string());
  const ChunkHeader header = chunk_header({.type = static_cast<std::uint32_t>(type),
                                           .id = next_id_,
                                           .record_bytes = static_cast<std::uint32_t>(record_bytes),
                                           .count = count},
                                          payload);
  for (const auto part : {std::as_bytes(std::span(&header, 1)), payload}) {
    if (write_all(file_, part) == part.size()) continue;
    const int error = errno;
    // An incomplete chunk would hide later ones.
    [[maybe_unused]] const int cut = ::ftruncate(file_, static_cast<off_t>(bytes_));
    ::close(std::exchange(file_, -1));
    fail<DataError>("{}: writing failed ({}); the part written so far can be read", path_.string(),
                    std::strerror(error));
  }
  bytes_ += sizeof header + payload.size();
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
  write_list(Chunk::names, 0, names_json(session.names));
  write_list(Chunk::threads, 0, threads_json(session.threads));
  write(Chunk::devices, session.devices);
  write(Chunk::steps, session.steps);
  write(Chunk::windows, session.windows);
  write(Chunk::spans, session.spans);
  write(Chunk::activities, session.activities);
  write(Chunk::samples, session.samples);
  write(Chunk::clocks, session.clocks);
  write(Chunk::peer_clocks, session.peer_clocks);
  write(Chunk::phases, session.phases);
  write(Chunk::kept, session.kept);
  write(Chunk::past, session.past);
  write(Chunk::losses, std::vector{session.losses});
}

}  // namespace warpstep::profiler

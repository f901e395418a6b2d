#include "profiler/sources/cupti_dump.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/record.h"
#include "profiler/session/session_file.h"

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

DumpLayout::DumpLayout(std::uint32_t version, const RecordBytes& bytes)
    : cupti_version(version),
      kernel_bytes(bytes[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]),
      copy_bytes(bytes[CUPTI_ACTIVITY_KIND_MEMCPY]),
      peer_copy_bytes(bytes[CUPTI_ACTIVITY_KIND_MEMCPY2]),
      set_bytes(bytes[CUPTI_ACTIVITY_KIND_MEMSET]),
      call_bytes(bytes[CUPTI_ACTIVITY_KIND_RUNTIME]),
      sync_bytes(bytes[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]),
      overhead_bytes(bytes[CUPTI_ACTIVITY_KIND_OVERHEAD]),
      graph_bytes(bytes[CUPTI_ACTIVITY_KIND_GRAPH_TRACE]) {}

RecordBytes DumpLayout::record_bytes() const {
  RecordBytes bytes = oldest_record_bytes();
  const auto set = [&](CUpti_ActivityKind kind, std::uint32_t count) {
    bytes[kind] = static_cast<std::uint16_t>(count % 8 == 0 && count <= 1024 ? count : 0);
  };
  set(CUPTI_ACTIVITY_KIND_KERNEL, kernel_bytes);
  set(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kernel_bytes);
  set(CUPTI_ACTIVITY_KIND_MEMCPY, copy_bytes);
  set(CUPTI_ACTIVITY_KIND_MEMCPY2, peer_copy_bytes);
  set(CUPTI_ACTIVITY_KIND_MEMSET, set_bytes);
  set(CUPTI_ACTIVITY_KIND_RUNTIME, call_bytes);
  set(CUPTI_ACTIVITY_KIND_DRIVER, call_bytes);
  set(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sync_bytes);
  set(CUPTI_ACTIVITY_KIND_OVERHEAD, overhead_bytes);
  set(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, graph_bytes);
  return bytes;
}

bool DumpLayout::is_known() const {
  return schema == 1 && knows_cupti_version(cupti_version) &&
         too_short_record(record_bytes()).empty();
}

DumpWriter::DumpWriter(std::filesystem::path path, const DumpLayout& layout)
    : path_(std::move(path)) {
  file_ = create_file(path_);
  if (file_ < 0) fail<DataError>("{}: cannot create it: {}", path_.string(), std::strerror(errno));
  try {
    append(static_cast<std::uint32_t>(DumpChunk::layout), bytes_of(layout));
  } catch (...) {
    ::close(file_);
    throw;
  }
}

DumpWriter::~DumpWriter() {
  ::close(file_);
}

void DumpWriter::write(std::span<const Device> devices) {
  if (devices.empty()) return;
  const std::vector<record::NameInfo> names = record::names();
  std::vector<std::byte> payload;
  for (const Device& device : devices) {
    const std::string& name = names[device.name].text;
    append_bytes(payload, bytes_of(DumpDevice{device, name.size()}));
    append_bytes(payload, std::as_bytes(std::span(name)));
  }
  append(static_cast<std::uint32_t>(DumpChunk::devices), payload);
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
  std::vector<GraphNode> nodes;
  for (const auto& [node, call] : facts.calls) nodes.push_back({node, call});
  std::ranges::sort(nodes, {}, &GraphNode::node);
  append(static_cast<std::uint32_t>(DumpChunk::nodes), std::as_bytes(std::span(nodes)));
  for (const std::string& note : facts.notes)
    append(static_cast<std::uint32_t>(DumpChunk::note), std::as_bytes(std::span(note)));
  append(static_cast<std::uint32_t>(DumpChunk::end), bytes_of(DumpEnd{facts.dropped}));
}

void DumpWriter::append(std::uint32_t type, std::span<const std::byte> payload) {
  const ChunkHeader header = chunk_header({.magic = dump_magic,
                                           .type = type,
                                           .id = next_id_,
                                           .record_bytes = 1,
                                           .count = payload.size()},
                                          payload);
  for (const auto part : {bytes_of(header), payload})
    if (write_all(file_, part) < part.size())
      fail<DataError>("{}: cannot write {} bytes of device records: {}", path_.string(),
                      payload.size(), std::strerror(errno));
  ++next_id_;
}

namespace {

class Replayer {
 public:
  Replayer(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::vector<Traced> run() {
    while (at_ < bytes_.size()) next();
    if (chunks_ == 0) fail<DataError>("{}: is empty, not a dump of device records", path_);
    if (in_window_ || windows_.empty())
      fail<DataError>(
          "{}: ends at byte {}, inside a window; the run was killed, or the file was cut", path_,
          bytes_.size());
    windows_.front().devices = std::move(devices_);
    return std::move(windows_);
  }

 private:
  void next() {
    ChunkHeader header;
    const std::size_t left = bytes_.size() - at_;
    if (left < sizeof header) fail<DataError>("{}: is cut at byte {}", path_, bytes_.size());
    std::memcpy(&header, bytes_.data() + at_, sizeof header);
    if (header.magic != dump_magic || header.header_crc != header_checksum(header) ||
        header.id != chunks_)
      fail<DataError>("{}: no chunk of a dump of device records at byte {}", path_, at_);
    if (header.bytes > left - sizeof header)
      fail<DataError>("{}: is cut at byte {}: the chunk at byte {} has {} bytes", path_,
                      bytes_.size(), at_, header.bytes);
    const std::string_view payload = bytes_.substr(at_ + sizeof header, header.bytes);
    if (checksum(std::as_bytes(std::span(payload))) != header.payload_crc)
      fail<DataError>("{}: the chunk at byte {} is damaged: its checksum does not match", path_,
                      at_);
    if ((chunks_ == 0) != (static_cast<DumpChunk>(header.type) == DumpChunk::layout))
      fail<DataError>("{}: at byte {}: a dump must begin with the layout of its records", path_,
                      at_);
    take(static_cast<DumpChunk>(header.type), payload);
    at_ += sizeof header + payload.size();
    ++chunks_;
  }

  void take(DumpChunk type, std::string_view payload) {
    if (type != DumpChunk::layout && type != DumpChunk::devices) in_window_ = true;
    switch (type) {
      case DumpChunk::layout: return take_layout(one<DumpLayout>(payload));
      case DumpChunk::texts: return take_texts(payload);
      case DumpChunk::buffer: return parser_.take(std::as_bytes(std::span(payload)));
      case DumpChunk::clocks: return take_clocks(payload);
      case DumpChunk::nodes:
        for (const GraphNode& node : records<GraphNode>(payload))
          facts_.calls[node.node] = node.call;
        return;
      case DumpChunk::note: facts_.notes.emplace_back(payload); return;
      case DumpChunk::end: return end_window(one<DumpEnd>(payload));
      case DumpChunk::devices: return take_devices(payload);
    }
    fail<DataError>("{}: the chunk at byte {} has the unknown type {}", path_, at_,
                    static_cast<std::uint32_t>(type));
  }

  template <class Record>
  std::vector<Record> records(std::string_view payload) const {
    if (payload.size() % sizeof(Record) != 0)
      fail<DataError>("{}: the chunk at byte {} has {} bytes, not a multiple of {}", path_, at_,
                      payload.size(), sizeof(Record));
    std::vector<Record> all(payload.size() / sizeof(Record));
    if (!all.empty()) std::memcpy(all.data(), payload.data(), payload.size());
    return all;
  }

  template <class Record>
  Record one(std::string_view payload) const {
    const std::vector<Record> all = records<Record>(payload);
    if (all.size() != 1)
      fail<DataError>("{}: the chunk at byte {} has {} bytes, expected {}", path_, at_,
                      payload.size(), sizeof(Record));
    return all.front();
  }

  void take_layout(const DumpLayout& layout) {
    if (!layout.is_known())
      fail<DataError>(
          "{}: was dumped with CUPTI {}, whose records have another layout than those of {} to {}; "
          "read it with a version of Warpstep that knows them",
          path_, layout.cupti_version, oldest_cupti, newest_cupti);
    record_bytes_ = layout.record_bytes();
    parser_ = make_parser();
  }

  void take_texts(std::string_view payload) {
    while (!payload.empty()) {
      DumpText head;
      if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
      if (payload.size() < sizeof head || head.bytes > payload.size() - sizeof head)
        fail<DataError>("{}: the chunk at byte {} ends within a text", path_, at_);
      texts_[{head.of, head.key}] = payload.substr(sizeof head, head.bytes);
      payload.remove_prefix(sizeof head + head.bytes);
    }
  }

  void take_devices(std::string_view payload) {
    while (!payload.empty()) {
      DumpDevice head;
      if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
      if (payload.size() < sizeof head || head.name_bytes > payload.size() - sizeof head)
        fail<DataError>("{}: the chunk at byte {} ends within a device", path_, at_);
      head.device.name = record::Name(payload.substr(sizeof head, head.name_bytes)).id();
      devices_.push_back(head.device);
      payload.remove_prefix(sizeof head + head.name_bytes);
    }
  }

  void take_clocks(std::string_view payload) {
    facts_.clocks = records<ClockReading>(payload);
    constexpr std::uint64_t most = std::uint64_t{1} << 62;  // 146 years
    for (const ClockReading& clock : facts_.clocks)
      if (clock.monotonic_ns > most || clock.device_ns > most || clock.realtime_ns > most ||
          clock.error_ns > most || clock.monotonic_ns < facts_.clocks.front().monotonic_ns)
        fail<DataError>("{}: the chunk at byte {} has impossible clock readings", path_, at_);
  }

  std::string text_of(TextOf of, std::uint64_t key) const {
    const auto text = texts_.find({static_cast<std::uint32_t>(of), key});
    if (text == texts_.end())
      fail<DataError>("{}: the buffer at byte {} refers to the missing name {:#x}", path_, at_,
                      key);
    return text->second;
  }

  void end_window(const DumpEnd& end) {
    facts_.dropped = end.dropped;
    windows_.push_back(assemble(parser_, facts_));
    parser_ = make_parser();
    facts_ = {};
    in_window_ = false;
  }

  Parser make_parser() {
    return Parser([this](TextOf of, std::uint64_t key) { return text_of(of, key); }, false,
                  record_bytes_);
  }

  std::string_view bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::uint32_t chunks_ = 0;
  bool in_window_ = false;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::string> texts_;
  RecordBytes record_bytes_ = oldest_record_bytes();
  Parser parser_ = make_parser();
  WindowFacts facts_;
  std::vector<Traced> windows_;
  std::vector<Device> devices_;
};

// Those that did something, also where the dump does not describe them.
std::vector<Device> active_devices(const Traced& traced) {
  std::map<std::uint32_t, const Device*> described;
  for (const Device& device : traced.devices) described.emplace(device.id, &device);
  std::set<std::uint32_t> active;
  for (const Activity& activity : traced.activities)
    if (is_on_device(activity)) active.insert(activity.device);
  std::vector<Device> devices;
  for (const std::uint32_t id : active) {
    const auto found = described.find(id);
    devices.push_back(found != described.end()
                          ? *found->second
                          : Device{.id = id, .name = record::Name("GPU").id()});
  }
  return devices;
}

}  // namespace

std::vector<Traced> parse_dump(std::string_view bytes, const std::string& path) {
  return Replayer(bytes, path).run();
}

std::vector<Traced> replay_windows(const std::filesystem::path& dump) {
  return parse_dump(read_file(dump), dump.string());
}

Traced replay_device_trace(const std::filesystem::path& dump) {
  std::vector<Traced> windows = replay_windows(dump);
  std::vector<Window> times;
  for (const Traced& window : windows)
    if (const auto& clocks = window.clocks; clocks.size() > 1)
      times.push_back({.begin_ns = clocks.front().monotonic_ns,
                       .end_ns = clocks.back().monotonic_ns,
                       .deep = 1,
                       .complete = 1});
  Traced all = std::move(windows.front());
  all.windows = std::move(times);
  for (std::size_t i = 1; i < windows.size(); ++i) {
    Traced& next = windows[i];
    const auto append = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    };
    append(all.activities, next.activities);
    append(all.clocks, next.clocks);
    append(all.notes, next.notes);
    all.losses.activities += next.losses.activities;
    all.losses.without_times += next.losses.without_times;
  }
  all.devices = active_devices(all);
  return all;
}

}  // namespace warpstep::profiler

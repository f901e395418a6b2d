// Dumps: raw activity buffers in a file, with everything needed to read them on another machine.
//
// Chunks are framed as in a session file (session_file.h) but with another magic: the layout of the
// records once, and the devices, which older versions left out; then for each window its buffers,
// each preceded by the texts that are new in it, and its facts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "profiler/sources/cupti_api.h"
#include "profiler/sources/cupti_parse.h"

namespace warpstep::profiler {

inline constexpr std::uint32_t dump_magic = 0x44435057;  // "WPCD"

enum class DumpChunk : std::uint32_t {
  layout = 1,  // a DumpLayout, first
  texts,       // for each text: DumpText, then its bytes
  buffer,      // CUPTI's
  clocks,      // ClockReadings
  nodes,       // GraphNodes, all known so far
  note,        // text
  end,         // of the window: a DumpEnd
  devices,     // for each device: DumpDevice, then its name's bytes; before the windows
};

// The library that wrote the records, and the bytes of each.
struct DumpLayout {
  std::uint32_t schema = 1;
  std::uint32_t cupti_version = 0;
  std::uint32_t kernel_bytes = 0, copy_bytes = 0, peer_copy_bytes = 0, set_bytes = 0;
  std::uint32_t call_bytes = 0, sync_bytes = 0, overhead_bytes = 0, graph_bytes = 0;

  explicit DumpLayout(std::uint32_t version = oldest_cupti,
                      const RecordBytes& bytes = oldest_record_bytes());

  RecordBytes record_bytes() const;
  bool is_known() const;  // this program can read the records
};

// The call that a node of a CUDA graph came from.
struct GraphNode {
  std::uint64_t node = 0;
  std::uint64_t call = 0;  // index into the program's calls
};

struct DumpText {
  std::uint64_t key = 0;
  std::uint32_t of = 0;
  std::uint32_t bytes = 0;
};

struct DumpDevice {
  Device device;  // its name means nothing here
  std::uint64_t name_bytes = 0;
};

struct DumpEnd {
  std::uint64_t dropped = 0;
};

// A text that the records of the following buffers refer to.
struct DumpedText {
  TextOf of = TextOf::kernel;
  std::uint64_t key = 0;
  std::string text;
};

class DumpWriter {
 public:
  // Creates the file, or empties it. Throws DataError that names it, like all members.
  explicit DumpWriter(std::filesystem::path path, const DumpLayout& layout = DumpLayout());
  ~DumpWriter();
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  void write(std::span<const Device> devices);
  void write(std::span<const DumpedText> texts);
  void write(std::span<const std::byte> buffer);
  void finish(const WindowFacts& facts);

 private:
  void append(std::uint32_t type, std::span<const std::byte> payload);

  std::filesystem::path path_;
  int file_ = -1;
  std::uint32_t next_id_ = 0;
};

// The results of end(), one per window; the first one has the devices that the dump describes.
// Throws DataError that names file and byte.
std::vector<Traced> replay_windows(const std::filesystem::path& dump);
std::vector<Traced> parse_dump(std::string_view bytes, const std::string& path);

}  // namespace warpstep::profiler

// Dumps: raw activity buffers in a file, with everything needed to read them on another machine.
//
// Chunks are framed as in a session file (session_file.h) but with another magic: the layout of the
// records once, and the devices, which older versions left out; then for each window its buffers,
// each preceded by the texts that are new in it, and its facts.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

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

// A program can read a dump if it was compiled with records of these sizes.
struct DumpLayout {
  std::uint32_t schema = 1;
  std::uint32_t cupti_version = CUPTI_API_VERSION;
  std::uint32_t kernel_bytes = sizeof(CUpti_ActivityKernel10);
  std::uint32_t copy_bytes = sizeof(CUpti_ActivityMemcpy6);
  std::uint32_t peer_copy_bytes = sizeof(CUpti_ActivityMemcpyPtoP4);
  std::uint32_t set_bytes = sizeof(CUpti_ActivityMemset4);
  std::uint32_t call_bytes = sizeof(CUpti_ActivityAPI);
  std::uint32_t sync_bytes = sizeof(CUpti_ActivitySynchronization2);
  std::uint32_t overhead_bytes = sizeof(CUpti_ActivityOverhead3);
  std::uint32_t graph_bytes = sizeof(CUpti_ActivityGraphTrace2);

  // The version may differ in its last two digits: updates keep the layout.
  bool fits(const DumpLayout& other) const {
    return schema == other.schema && cupti_version / 100 == other.cupti_version / 100 &&
           kernel_bytes == other.kernel_bytes && copy_bytes == other.copy_bytes &&
           peer_copy_bytes == other.peer_copy_bytes && set_bytes == other.set_bytes &&
           call_bytes == other.call_bytes && sync_bytes == other.sync_bytes &&
           overhead_bytes == other.overhead_bytes && graph_bytes == other.graph_bytes;
  }
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
  explicit DumpWriter(std::filesystem::path path);
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

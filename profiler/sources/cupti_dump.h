// Raw activity buffers in a file, with all that is needed to read them elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "profiler/sources/cupti_window.h"

namespace warpstep::profiler {

// A text that the records of the following buffers refer to.
struct DumpedText {
  TextOf of = TextOf::kernel;
  std::uint64_t key = 0;
  std::string text;
};

// Chunks framed like a session's (session/chunk.h) but for their magic: the records' layout once;
// then for each window its buffers, each behind the texts that are new in it, and its facts.
class DumpWriter {
 public:
  // Creates the file, or empties it. DataError that names it, here and below.
  explicit DumpWriter(std::filesystem::path path);
  ~DumpWriter();
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  void write(std::span<const DumpedText> texts);
  void write(std::span<const std::byte> buffer);
  void finish(const WindowFacts& facts);

 private:
  void append(std::uint32_t type, std::span<const std::byte> payload);

  std::filesystem::path path_;
  int file_ = -1;
  std::uint32_t next_id_ = 0;
};

// What end() gave, a window each. DataError that names file and byte.
std::vector<Traced> replay_windows(const std::filesystem::path& dump);
std::vector<Traced> parse_dump(std::string_view bytes, const std::string& path);

}  // namespace warpstep::profiler

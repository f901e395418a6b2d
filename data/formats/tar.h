// tar archives, as far as data sets need them: regular files in the archive's order; ustar of
// POSIX.1-1988, pax records of path and size, GNU's long names. Also the index file of a shard.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/file.h"

namespace warpstep::data {

inline constexpr std::uint64_t tar_block_bytes = 512;

struct TarMember {
  std::string name;
  std::uint64_t offset = 0;  // of the data in the archive, a multiple of 512
  std::uint64_t bytes = 0;
};

// Reads only the headers, 4 KB at a time, by position: an archive of large members is not read
// whole for its names.
class TarReader {
 public:
  explicit TarReader(const std::string& path);  // throws DataError

  // The next regular file; skips folders. False at the archive's end. Throws DataError naming the
  // archive, the byte and the member for damaged headers, a truncated archive, links, devices,
  // sparse files, and names that are absolute or contain `..`.
  bool next(TarMember& member);

  // Fills `out` from byte `offset` of the archive on; near the last header without a system call.
  void read(std::uint64_t offset, std::span<std::uint8_t> out);
  std::uint64_t bytes() const { return file_.bytes(); }

 private:
  using Block = std::array<std::uint8_t, tar_block_bytes>;

  bool read_header(Block& block);  // at at_; false at the archive's end
  void expect_end();
  void take_pax(std::string_view records, TarMember& overrides, bool& has_size);
  std::string read_text(std::uint64_t bytes);
  [[noreturn]] void refuse(std::uint64_t byte, const std::string& what) const;

  InputFile file_;
  std::uint64_t at_ = 0;  // of the next header
  std::vector<std::uint8_t> window_;
  std::uint64_t window_begin_ = 0;
};

// The 512 bytes before a member's data, ustar, owner and time 0 so that equal content gives equal
// archives. Throws UsageError for a name of more than 100 bytes and for 8 GiB and more.
std::array<std::uint8_t, tar_block_bytes> tar_header(std::string_view name, std::uint64_t bytes);

// The name in such a header; it is cut at 100 bytes when an extended header has the full name.
std::string tar_name(std::span<const std::uint8_t, tar_block_bytes> header);

// WebDataset's rule: the members of one sample share the key, which ends before the first dot of
// the last part of the name, and differ in the extension after that dot.
struct TarName {
  std::string_view key;
  std::string_view extension;
};
TarName split_tar_name(std::string_view name);

// Builds the text of a shard's index from its members, in their order. The format is that of DALI's
// wds2idx: a line `v1.2 SAMPLES`, then one line per sample with `EXTENSION OFFSET BYTES NAME` for
// each of its members, all separated by single spaces. Offsets are those of the members' data.
class TarIndexText {
 public:
  void add(const TarMember& member);
  // Empty when the shard cannot have an index: no samples, or a name with white space.
  std::string text() const;

 private:
  std::string lines_;
  std::string key_;
  std::uint64_t samples_ = 0;
  bool fits_ = true;
};

// Throws DataError naming `path` and the line unless the index `found` equals `expected`, the index
// of the shard's content. Also accepts an index of v1.1, which has no names.
void check_tar_index(std::string_view found, const std::string& path, std::string_view expected);

}  // namespace warpstep::data

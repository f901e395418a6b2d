// tar archives as far as data sets need them: regular files, in the order in which they stand.
// ustar of POSIX.1-1988, pax records of path and size, and GNU's long names.
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

// Walks over the headers alone, by position: 4 KB a look, so that an archive of large members is
// not read whole for its names.
class TarReader {
 public:
  explicit TarReader(const std::string& path);  // throws DataError

  // The next regular file; folders are passed over. False at the archive's end. Throws DataError
  // naming the archive, the byte and the member: for damaged headers, an archive that is cut or
  // lacks its end, links, devices, sparse files, and names that are absolute or have `..`.
  bool next(TarMember& member);

  // Fills `out` from byte `offset` of the archive on; near the last header it takes no system call.
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

// The name that such a header holds itself: cut at 100 bytes where an extended one has the whole.
std::string tar_name(std::span<const std::uint8_t, tar_block_bytes> header);

// WebDataset's rule: what the members of one sample have in common, up to the first dot of the last
// part of the name, and what tells them apart, after it.
struct TarName {
  std::string_view key;
  std::string_view extension;
};
TarName split_tar_name(std::string_view name);

// The index beside a shard, as DALI's wds2idx writes it: a line `v1.2 SAMPLES`, then one a sample
// of `EXTENSION OFFSET BYTES NAME` for each of its members, all divided by single spaces. Offsets
// are those of the members' data.

// Builds the text of an index from a shard's members, in their order.
class TarIndexText {
 public:
  void add(const TarMember& member);
  // Empty when there can be no index: no samples, or a name with white space in it.
  std::string text() const;

 private:
  std::string lines_;
  std::string key_;
  std::uint64_t samples_ = 0;
  bool fits_ = true;
};

// Throws DataError naming `path` and the line unless the index `found` says the same as `expected`,
// the text of what is in the shard. An index of v1.1, which has no names, is fine too.
void check_tar_index(std::string_view found, const std::string& path, std::string_view expected);

}  // namespace warpstep::data

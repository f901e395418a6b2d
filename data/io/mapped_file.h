// A read-only file as memory, or read piece by piece where mapping is unsafe (network mounts), and
// what the system is asked to read ahead of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/io/file.h"

namespace warpstep::data {

// Const members may be called from many threads at once. The first mapping installs a SIGBUS
// handler, which names the truncated file and ends the program; it passes faults at other addresses
// to the previous handler. At most 4096 files are mapped at a time; further ones are read with
// pread. A file that is not mapped stays open, and raises the process's soft limit of open files to
// the hard one.
class MappedFile {
 public:
  explicit MappedFile(std::string path, Io io = Io::mmap);  // throws DataError
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }                           // when it was opened
  std::int64_t modified_ns() const { return data::modified_ns(status_); }  // when it was opened
  bool is_mapped() const { return memory_ != nullptr; }

  // Bytes [offset, offset + bytes): a view of the mapping, or a copy in `scratch`, which grows when
  // it is too short and never shrinks. Throws DataError when the file is shorter or cannot be read.
  std::span<const std::uint8_t> view(std::uint64_t offset, std::uint64_t bytes,
                                     std::vector<std::uint8_t>& scratch) const;
  // Asks the system to read the range soon; about a microsecond, and never an error.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const;
  // From now on a page of the mapping that is not in memory is read without its neighbours, of
  // which the system otherwise reads 128 KiB, or with some disks 8 MiB. For files of which memory
  // holds a part, and whose ranges are used in no order: neighbours would be dropped unused.
  void read_pages_alone() const;
  // Throws DataError when the path no longer names the same file, of the same size and time.
  void check_unchanged() const;

 private:
  std::string path_;
  std::string shown_path_;  // for a terminal, by the handler, which may not allocate
  struct ::stat status_ {};
  Descriptor file_;
  std::uint64_t bytes_ = 0;
  const std::uint8_t* memory_ = nullptr;
  int slot_ = -1;  // in the handler's table
  mutable std::atomic<bool> pages_alone_ = false;
};

// Asks for the samples of a set ahead of their use. The request costs 0.6 us, more than copying a
// small sample, so of a set that fits into the page cache each sample is requested once. Of a
// larger one all are, and pages that were not in time are read alone. Thread-safe.
class Readahead {
 public:
  Readahead() = default;  // of a larger one
  // For a set of `set_bytes`, of which the page cache may hold `budget_bytes`.
  Readahead(std::uint64_t samples, std::uint64_t set_bytes, std::uint64_t budget_bytes)
      : requested_(set_bytes <= budget_bytes ? static_cast<std::size_t>(samples) : 0) {}

  // Whether sample `index` is to be requested; it counts as requested from then on.
  bool first_request(std::uint64_t index) const;
  // If so, requests it: it is at [offset, offset + bytes) of the file.
  void request(std::uint64_t index, const MappedFile& file, std::uint64_t offset,
               std::uint64_t bytes) const;

 private:
  mutable std::vector<std::atomic<std::uint8_t>> requested_;  // by sample; empty: of a larger set
};

}  // namespace warpstep::data

// A read-only file as memory, or read piece by piece where mapping is unsafe (network mounts), and
// which of its samples the system has been asked to read ahead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/io/file.h"

namespace warpstep::data {

// Remembers for which samples of a set readahead was requested. The request costs 0.6 us, more than
// copying a small sample, so a set that fits into the page cache requests each sample once.
// Thread-safe.
class ReadaheadTracker {
 public:
  ReadaheadTracker() = default;  // first_request() is always true
  // For a set of `set_bytes`, of which the page cache may hold `budget_bytes`.
  ReadaheadTracker(std::uint64_t samples, std::uint64_t set_bytes, std::uint64_t budget_bytes)
      : requested_(set_bytes <= budget_bytes ? static_cast<std::size_t>(samples) : 0) {}

  // Whether readahead should be requested for sample `index`; it counts as requested from then on.
  bool first_request(std::uint64_t index) const {
    if (requested_.empty()) return true;
    std::atomic<std::uint8_t>& requested = requested_[static_cast<std::size_t>(index)];
    if (requested.load(std::memory_order_relaxed) != 0) return false;
    requested.store(1, std::memory_order_relaxed);
    return true;
  }

 private:
  mutable std::vector<std::atomic<std::uint8_t>> requested_;
};

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
};

}  // namespace warpstep::data

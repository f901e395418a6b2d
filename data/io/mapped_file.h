// A read-only file as memory, or read piece by piece where mapping is no good (network mounts).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/io/file.h"

namespace warpstep::data {

// Which samples of a mapped set the system was asked to read ahead.

// To ask costs 0.6 us a sample, more than to copy a small one: of a set that memory holds easily
// each sample is asked for once. Thread-safe.
class Asked {
 public:
  Asked() = default;  // asks always
  // For a set of `set_bytes`, of which a machine may spare `budget_bytes` for its page cache.
  Asked(std::uint64_t samples, std::uint64_t set_bytes, std::uint64_t budget_bytes)
      : before_(set_bytes <= budget_bytes ? static_cast<std::size_t>(samples) : 0) {}

  bool is_first(std::uint64_t index) const {
    if (before_.empty()) return true;
    std::atomic<std::uint8_t>& before = before_[static_cast<std::size_t>(index)];
    if (before.load(std::memory_order_relaxed) != 0) return false;
    before.store(1, std::memory_order_relaxed);
    return true;
  }

 private:
  mutable std::vector<std::atomic<std::uint8_t>> before_;
};

// Const members may be called from many threads at once. The first mapping installs a handler of
// SIGBUS, which names the file that was cut and ends the program; faults at other addresses go to
// the handler that was there before. At most 4096 files are mapped at a time; further ones are
// read with pread.
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

  // Bytes [offset, offset + bytes): of the mapping, or of `scratch`, which is made long enough and
  // keeps its length. Throws DataError when the file ends before, or cannot be read.
  std::span<const std::uint8_t> view(std::uint64_t offset, std::uint64_t bytes,
                                     std::vector<std::uint8_t>& scratch) const;
  // Asks the system to read the range soon; about a microsecond, and never an error.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const;
  // Throws DataError when the path no longer names the same file, of the same size and time.
  void check_unchanged() const;

 private:
  std::string path_;
  struct ::stat status_ {};
  Descriptor file_;
  std::uint64_t bytes_ = 0;
  const std::uint8_t* memory_ = nullptr;
  int slot_ = -1;  // in the handler's table
};

}  // namespace warpstep::data

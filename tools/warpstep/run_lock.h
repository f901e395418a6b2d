// One process at a time trains into a run directory.
#pragma once

#include <filesystem>
#include <string_view>

namespace warpstep::tools {

inline constexpr std::string_view lock_name = ".lock";  // in the directory, while a run holds it

// The system releases the lock when its process ends, however that ends: a file that is left behind
// locks nothing. Where the file cannot be written, or its file system has no locks, there is none.
class RunLock {
 public:
  RunLock() = default;  // of no directory
  // Throws DataError that names who trains there: process, host, and since when.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Makes the directory first; where it cannot be made, it is of no directory.
RunLock lock_new_run(const std::filesystem::path& run);

}  // namespace warpstep::tools

// The control groups (cgroups) of this process, version 1 and 2, and the CPU time, memory and I/O
// that they allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace warpstep {

// Folders of the process's groups: its own first, then the ancestors up to the mount. Some may not
// exist: a container sees a part of the hierarchy, and mounts have several names.
struct ControlGroups {
  std::vector<std::filesystem::path> v2;                  // with the files of all controllers
  std::vector<std::filesystem::path> cpu, memory, blkio;  // of version 1
};
ControlGroups control_groups(const std::filesystem::path& root = "/");

// The lowest quota / period of the process's groups: 1.5 is one core and a half. Nothing: no limit.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
std::optional<double> cpu_quota(const ControlGroups& groups);
// Of this folder alone, in the files of either version.
std::optional<double> cpu_quota_of(const std::filesystem::path& group);

// The lowest cpu.weight of the process's groups, where it is below the usual 100: their share of a
// core for which processes of other groups compete. cpu.shares of version 1 counts in proportion.
std::optional<double> low_cpu_weight(const std::filesystem::path& root = "/");

// The folders of either version that limit memory: memory.max, memory.high, above which the kernel
// reclaims and slows the group down, or memory.limit_in_bytes.
std::vector<std::filesystem::path> memory_groups(const ControlGroups& groups);
// The lowest limit of the process's groups in bytes. Nothing: no limit.
std::optional<std::uint64_t> memory_limit(const std::filesystem::path& root = "/");

struct MemoryLimit {
  std::uint64_t limit_bytes = 0;
  // Cached pages of files, which can be evicted, are free.
  std::uint64_t used_bytes = 0, free_bytes = 0;
  std::uint64_t hits = 0;  // the kernel had to reclaim, or failed to
  // Pages of files that were read again after the kernel had dropped them. Nothing: not counted.
  std::optional<std::uint64_t> refaults;
};
// Of that of these folders whose limit leaves least. Nothing: no limit.
std::optional<MemoryLimit> tightest_memory(const std::vector<std::filesystem::path>& groups);

// Of one device. 0: no limit.
struct IoLimit {
  std::string device;  // "8:0": major and minor number
  std::uint64_t read_bytes_per_s = 0, reads_per_s = 0;
  std::uint64_t write_bytes_per_s = 0, writes_per_s = 0;
};
// The lowest of the process's groups, by device: io.max, or blkio.throttle.*.
std::vector<IoLimit> io_limits(const std::filesystem::path& root = "/");

}  // namespace warpstep

// The control groups (cgroups) of this process, version 1 and 2, and the CPU time and memory that
// they allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace warpstep {

// Folders of the process's groups: its own first, then the ancestors up to the mount. Some may not
// exist: a container sees a part of the hierarchy, and mounts have several names.
struct ControlGroups {
  std::vector<std::filesystem::path> v2;           // with the files of all controllers
  std::vector<std::filesystem::path> cpu, memory;  // of version 1
};
ControlGroups control_groups(const std::filesystem::path& root = "/");

// The lowest quota / period of the process's groups: 1.5 is one core and a half. Nothing: no limit.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
std::optional<double> cpu_quota(const ControlGroups& groups);
// Of this folder alone, in the files of either version.
std::optional<double> cpu_quota_of(const std::filesystem::path& group);

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
};
// Of that of these folders whose limit leaves least. Nothing: no limit.
std::optional<MemoryLimit> tightest_memory(const std::vector<std::filesystem::path>& groups);

}  // namespace warpstep

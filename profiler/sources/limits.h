// What the control groups of a process leave it of the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace warpstep::profiler {

struct ControlGroupLimits {
  std::optional<double> cpu_cores;            // quota / period: 1.5 is one core and a half
  std::optional<std::uint64_t> memory_bytes;  // nothing, like above: no limit
  // The least that a limit leaves: pages of files, which give way, count as free.
  std::optional<std::uint64_t> memory_free_bytes;
};

// The lowest limits of the process's groups and of those above them, of version 1 and 2 (a machine
// may have both). A group that cannot be seen from within a container counts from where it can.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

}  // namespace warpstep::profiler

// What a run must be told with for somebody else to have the same: machine, limits, clocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace warpstep::profiler {

// What the control groups of a process leave it of the machine.

struct ControlGroupLimits {
  std::optional<double> cpu_cores;            // quota / period: 1.5 is one core and a half
  std::optional<std::uint64_t> memory_bytes;  // nothing, like above: no limit
  // The least that a limit leaves: pages of files, which give way, count as free.
  std::optional<std::uint64_t> memory_free_bytes;
};

// The lowest limits of the process's groups and of those above them, of version 1 and 2 (a machine
// may have both). A group that cannot be seen from within a container counts from where it can.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

struct NvmlFunctions;

// {"cpu": {"model", "cores", "governor", "frequency_mhz", "max_frequency_mhz", "numa_nodes"},
//  "affinity": "0-1", "cgroup": {"cpu_quota_cores", "memory_limit_bytes"}, "kernel",
//  "boot": an id of the machine's start, "load_average": [of 1, 5 and 15 minutes],
//  "transparent_huge_pages": "madvise",
//  "libraries": {"libcudnn": "9.13.0", ...} of those loaded by now,
//  "gpus": [{"name", "driver", "power_limit_w", "persistence": true, "sm_clock_mhz",
//  "max_sm_clock_mhz", "memory_clock_mhz", "max_memory_clock_mhz", "ecc": true}, ...]}.
// What cannot be read is left out, and so is an object of which nothing can. `root` is / but in
// tests, where no GPU is asked either.
nlohmann::ordered_json machine_stamp(const std::filesystem::path& root = "/");
// The same with these functions instead of the driver's library.
nlohmann::ordered_json machine_stamp(const std::filesystem::path& root, const NvmlFunctions& nvml);

}  // namespace warpstep::profiler

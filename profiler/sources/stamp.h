// What a run must be told with for somebody else to have the same: machine, limits, clocks.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace warpstep::profiler {

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

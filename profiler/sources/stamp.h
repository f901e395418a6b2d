// What a run must be told with for somebody else to have the same: machine, limits, clocks.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace warpstep::profiler {

// {"cpu": {"model", "cores", "governor", "frequency_mhz", "numa_nodes"}, "affinity": "0-1",
// "cgroup":
// {"cpu_quota_cores", "memory_limit_bytes"}, "kernel", "load_average", "libraries": {...}, "gpus":
// [
// {"name", "driver", "power_limit_w", "persistence", "sm_clock_mhz", "max_sm_clock_mhz", ...}]}.
// What cannot be read is left out. `root` is / but in tests.
nlohmann::ordered_json machine_stamp(const std::filesystem::path& root = "/");

}  // namespace warpstep::profiler

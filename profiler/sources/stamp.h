// The stamp: the facts about a machine that are needed to reproduce a measurement (hardware,
// limits, clocks, library versions).
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/sources/sampler_nvml.h"

namespace warpstep::profiler {

// {"cpu": {"model", "cores", "frequency_mhz", "physical_cores": of the CPUs in `affinity`,
//  "numa_nodes", "smt": "on", "boost": "on",
//  "clocks": [{"cpus": "0-1", "governor", "min_mhz", "max_mhz", "current_mhz": [one per CPU]}, ...]
//  of the CPUs in `affinity`},
//  "affinity": "0-1", "cgroup": {"cpu_quota_cores", "cpu_weight": below 100, "memory_limit_bytes",
//  "io_limits": [{"device": "sda", "read_bytes_per_s", "reads_per_s", "write_bytes_per_s",
//  "writes_per_s"}, ...] of those that are limited}, "kernel",
//  "boot": an id of the machine's start, "scheduling": {"nice": 10, "policy": "batch"} where they
//  are not 0 and the usual one, "load_average": [of 1, 5 and 15 minutes],
//  "transparent_huge_pages": "madvise",
//  "libraries": {"libcudnn": "9.13.0", ...} of those loaded by now,
//  "gpus": [{"name", "driver", "power_limit_w", "persistence": true, "sm_clock_mhz",
//  "application_sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "max_memory_clock_mhz",
//  "ecc": true, "id": GpuPlace::number}, ...] of `gpus`, without which NVML is not loaded}.
// Values that cannot be read, and objects without values, are left out; but "smt", "boost" and
// "clocks" are "not readable" then, as in most virtual machines. `root` is / except in
// tests.
// "affinity" is the process's, or `affinity` if given: of a process that has pinned threads since.
nlohmann::ordered_json machine_stamp(const std::filesystem::path& root = "/",
                                     const std::string& affinity = "",
                                     const std::vector<GpuPlace>& gpus = {});
// The same with these functions instead of the driver's library.
nlohmann::ordered_json machine_stamp(const std::filesystem::path& root, const NvmlFunctions& nvml,
                                     const std::string& affinity,
                                     const std::vector<GpuPlace>& gpus);
// The variables of OpenMP that the user set, which decide how many threads there are, where they
// run and how they wait: {"OMP_PROC_BIND": "close", ...}.
nlohmann::ordered_json openmp_stamp();

}  // namespace warpstep::profiler

// Readings of what the process was not given: the cores that its threads waited for, the CPU time
// that a quota withheld, the memory that the kernel had to find first. Pure functions of folders,
// so that tests can supply their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/control_group.h"
#include "engine/core/run_delay.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {

// Which files there are; found once.
struct CoreSources {
  std::filesystem::path proc;
  std::vector<std::filesystem::path> cpu_groups;     // with a quota
  std::vector<std::filesystem::path> memory_groups;  // with a limit
  std::filesystem::path pressure_group;              // with its own pressure files; or empty
  std::vector<std::filesystem::path> packages;       // RAPL domains whose energy can be read
};
// `root` has sys/fs/cgroup, sys/class/powercap and proc/self/cgroup.
CoreSources find_core_sources(const std::filesystem::path& proc, const std::filesystem::path& root);

struct ThreadReading : ScheduledTime {
  std::string name;  // "main", "loader 0"; "kernels" for each of the team; "other threads"
};
struct QuotaReading {
  std::uint64_t periods = 0, throttled = 0, throttled_ns = 0;
};
struct EnergyReading {
  std::uint64_t microjoules = 0, range = 0;  // it begins again at 0 after `range`
};

struct CoreReading {
  std::uint64_t at_ns = 0;
  std::map<std::uint32_t, ThreadReading> threads;  // by gettid()
  std::optional<int> team_cpus;      // on which main and the team's threads may run, all together
  std::vector<QuotaReading> quotas;  // of CoreSources::cpu_groups that can be read
  std::map<std::string, std::uint64_t> pressure_us;  // by metric
  std::optional<std::uint64_t> switches;             // involuntary
  std::optional<std::uint64_t> major_faults;
  std::optional<std::uint64_t> reclaimed, swapped;  // pages
  // Pages of files that were read again after the kernel had dropped them, of `memory`'s group or,
  // without a limit, of the machine.
  std::optional<std::uint64_t> refaults;
  std::optional<MemoryLimit> memory;    // the tightest
  std::vector<EnergyReading> packages;  // of the CPU, as CoreSources::packages
};
// `names` as record::named_threads(). Files that are not there are no problem: containers and older
// kernels lack some. Throws only std::bad_alloc.
CoreReading read_cores(const CoreSources& sources,
                       const std::map<std::uint32_t, std::string>& names);

std::optional<std::uint64_t> parse_pressure(std::string_view text);  // total of "some", us
QuotaReading parse_cpu_stat(std::string_view text);                  // of version 1 or 2

std::vector<Metric> levels(const CoreReading& now);
// A thread that is not in `before` began since.
std::vector<Metric> rates(const CoreReading& before, const CoreReading& after);

}  // namespace warpstep::profiler

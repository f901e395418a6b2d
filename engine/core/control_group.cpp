#include "engine/core/control_group.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>

namespace warpstep {
namespace {

using std::filesystem::path;

// "max" in version 2 and -1 in version 1 are no counts: no limit.
std::optional<std::uint64_t> count_of(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) return std::nullopt;
  return value;
}

std::optional<double> cores_of(const std::string& quota, const std::string& period) {
  const auto quota_us = count_of(quota), period_us = count_of(period);
  if (!quota_us || !period_us) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::string word_in(const path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// The group and its ancestors, up to the mount.
void add_folders(const path& mount, std::string_view group, std::vector<path>& folders) {
  path relative = path(group).relative_path().lexically_normal();
  // "/../x": the process's group is outside the container's.
  if (!relative.empty() && *relative.begin() == "..") relative.clear();
  for (; !relative.empty() && relative != "."; relative = relative.parent_path())
    folders.push_back(mount / relative);
  folders.push_back(mount);
}

// A mount of version 1 is named by all its controllers, "cpu,cpuacct", or by one.
void add_v1(const path& mounts, const std::string& controllers, std::string_view group,
            ControlGroups& groups) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name != "cpu" && name != "memory" && name != "blkio") continue;
    std::vector<path>& folders = name == "cpu"      ? groups.cpu
                                 : name == "memory" ? groups.memory
                                                    : groups.blkio;
    add_folders(mounts / name, group, folders);
    if (name != controllers) add_folders(mounts / controllers, group, folders);
  }
}

template <class Value>
void lower(std::optional<Value>& limit, std::optional<Value> to) {
  if (to && (!limit || *to < *limit)) limit = to;
}

std::optional<std::uint64_t> memory_limit_of(const path& group) {
  std::optional<std::uint64_t> lowest;
  for (const char* const file : {"memory.max", "memory.high", "memory.limit_in_bytes"}) {
    const auto bytes = count_of(word_in(group / file));
    // Version 1 writes "no limit" as the largest number of whole pages.
    if (bytes && *bytes < std::uint64_t{1} << 60) lower(lowest, bytes);
  }
  return lowest;
}

// Lines "KEY VALUE": the sum of the values of these keys. Nothing: it has none of them.
std::optional<std::uint64_t> sum_of(const path& file,
                                    std::initializer_list<std::string_view> keys) {
  std::ifstream lines(file);
  std::optional<std::uint64_t> sum;
  std::uint64_t value = 0;
  for (std::string key; lines >> key >> value;)
    if (std::ranges::find(keys, key) != keys.end()) sum = sum.value_or(0) + value;
  return sum;
}

}  // namespace

ControlGroups control_groups(const path& root) {
  const path mounts = root / "sys/fs/cgroup";
  ControlGroups groups;
  std::ifstream file(root / "proc/self/cgroup");
  // Lines "ID:CONTROLLERS:/GROUP"; version 2 is "0::/GROUP".
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = std::string_view(line).substr(second + 1);
    if (!controllers.empty()) {
      add_v1(mounts, controllers, group, groups);
      continue;
    }
    add_folders(mounts, group, groups.v2);
    add_folders(mounts / "unified", group, groups.v2);
  }
  if (std::ranges::find(groups.v2, mounts) == groups.v2.end()) groups.v2.push_back(mounts);
  return groups;
}

std::optional<double> cpu_quota_of(const path& group) {
  std::ifstream v2(group / "cpu.max");
  if (std::string quota, period; v2 >> quota >> period) return cores_of(quota, period);
  return cores_of(word_in(group / "cpu.cfs_quota_us"), word_in(group / "cpu.cfs_period_us"));
}

std::optional<double> cpu_quota(const ControlGroups& groups) {
  std::optional<double> cores;
  for (const path& group : groups.v2) lower(cores, cpu_quota_of(group));
  for (const path& group : groups.cpu) lower(cores, cpu_quota_of(group));
  return cores;
}

std::optional<double> cpu_quota(const path& root) {
  return cpu_quota(control_groups(root));
}

std::optional<double> low_cpu_weight(const path& root) {
  constexpr double usual_weight = 100, usual_shares = 1024;
  const ControlGroups groups = control_groups(root);
  double lowest = usual_weight;
  for (const path& group : groups.v2)
    if (const auto weight = count_of(word_in(group / "cpu.weight")))
      lowest = std::min(lowest, static_cast<double>(*weight));
  for (const path& group : groups.cpu)
    if (const auto shares = count_of(word_in(group / "cpu.shares")))
      lowest = std::min(lowest, static_cast<double>(*shares) * usual_weight / usual_shares);
  return lowest < usual_weight ? std::optional(lowest) : std::nullopt;
}

std::vector<path> memory_groups(const ControlGroups& groups) {
  std::vector<path> limited;
  for (const auto* const folders : {&groups.v2, &groups.memory})
    for (const path& group : *folders)
      if (memory_limit_of(group)) limited.push_back(group);
  return limited;
}

std::optional<std::uint64_t> memory_limit(const path& root) {
  std::optional<std::uint64_t> bytes;
  for (const path& group : memory_groups(control_groups(root)))
    lower(bytes, memory_limit_of(group));
  return bytes;
}

std::optional<MemoryLimit> tightest_memory(const std::vector<path>& groups) {
  std::optional<MemoryLimit> tightest;
  for (const path& group : groups) {
    const auto limit = memory_limit_of(group);
    if (!limit) continue;
    MemoryLimit memory{.limit_bytes = *limit};
    const auto used = count_of(word_in(group / "memory.current"));
    const path stat = group / "memory.stat";
    memory.used_bytes =
        used ? *used : count_of(word_in(group / "memory.usage_in_bytes")).value_or(0);
    const auto cached = used ? sum_of(stat, {"inactive_file", "active_file"})
                             : sum_of(stat, {"total_inactive_file", "total_active_file"});
    memory.used_bytes -= std::min(memory.used_bytes, cached.value_or(0));
    memory.free_bytes = *limit - std::min(*limit, memory.used_bytes);
    const auto hits = used ? sum_of(group / "memory.events", {"high", "max", "oom"})
                           : count_of(word_in(group / "memory.failcnt"));
    memory.hits = hits.value_or(0);
    memory.refaults =
        sum_of(stat, {used ? "workingset_refault_file" : "total_workingset_refault_file"});
    if (!tightest || memory.free_bytes < tightest->free_bytes) tightest = memory;
  }
  return tightest;
}

namespace {

using IoRate = std::uint64_t IoLimit::*;

// The files of version 1 have one rate each, lines "8:0 1048576"; io.max has all of a device in
// one, "8:0 rbps=1048576 wbps=max riops=max wiops=max".
constexpr std::array<std::tuple<const char*, std::string_view, IoRate>, 4> io_rates{
    {{"blkio.throttle.read_bps_device", "rbps=", &IoLimit::read_bytes_per_s},
     {"blkio.throttle.read_iops_device", "riops=", &IoLimit::reads_per_s},
     {"blkio.throttle.write_bps_device", "wbps=", &IoLimit::write_bytes_per_s},
     {"blkio.throttle.write_iops_device", "wiops=", &IoLimit::writes_per_s}}};

void lower(std::vector<IoLimit>& limits, const std::string& device, IoRate rate,
           std::optional<std::uint64_t> to) {
  if (!to) return;
  auto limit = std::ranges::find(limits, device, &IoLimit::device);
  if (limit == limits.end()) limit = limits.insert(limit, IoLimit{.device = device});
  std::uint64_t& value = (*limit).*rate;
  if (value == 0 || *to < value) value = *to;
}

}  // namespace

std::vector<IoLimit> io_limits(const path& root) {
  const ControlGroups groups = control_groups(root);
  std::vector<IoLimit> limits;
  for (const path& group : groups.v2) {
    std::ifstream file(group / "io.max");
    for (std::string line, device, word; std::getline(file, line);) {
      std::istringstream words(line);
      for (words >> device; words >> word;)
        for (const auto& [name, key, rate] : io_rates)
          if (word.starts_with(key)) lower(limits, device, rate, count_of(word.substr(key.size())));
    }
  }
  for (const path& group : groups.blkio)
    for (const auto& [name, key, rate] : io_rates) {
      std::ifstream file(group / name);
      for (std::string device, value; file >> device >> value;)
        lower(limits, device, rate, count_of(value));
    }
  return limits;
}

}  // namespace warpstep

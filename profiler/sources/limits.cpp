#include "profiler/sources/limits.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "profiler/sources/proc_file.h"

namespace warpstep::profiler {
namespace {

using std::filesystem::path;

template <class Value>
void lower(std::optional<Value>& limit, std::optional<Value> to) {
  if (to && (!limit || *to < *limit)) limit = to;
}

// "max" of version 2 and -1 of version 1 are no numbers here: no limit.
std::optional<double> cores_of(std::string_view quota, std::string_view period) {
  const auto quota_us = parse_number(quota);
  const auto period_us = parse_number(period);
  if (!quota_us || !period_us || *quota_us == 0 || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<std::uint64_t> bytes_of(std::string_view text) {
  // Version 1 writes "no limit" as the largest number of whole pages.
  const auto bytes = parse_number(text);
  return bytes && *bytes < std::uint64_t{1} << 60 ? bytes : std::nullopt;
}

// Of a limit, what `taken` leaves; `files` are the lines of memory.stat with pages of files.
std::optional<std::uint64_t> free_of(const path& group, std::optional<std::uint64_t> limit,
                                     const char* taken, std::array<const char*, 2> files) {
  const auto used = parse_number(first_line(group / taken));
  if (!limit || !used) return std::nullopt;
  const std::string stat = read_text(group / "memory.stat").value_or("");
  std::uint64_t reclaimable = 0;
  for (std::string_view lines = stat; !lines.empty();) {
    std::string_view fields = next_line(lines);
    const std::string_view key = next_field(fields);
    if (key == files[0] || key == files[1])
      reclaimable += parse_number(next_field(fields)).value_or(0);
  }
  const std::uint64_t held = *used - std::min(*used, reclaimable);
  return *limit - std::min(*limit, held);
}

void read_v2(const path& group, ControlGroupLimits& limits) {
  const std::string cpu = first_line(group / "cpu.max");
  std::string_view fields = cpu;
  const std::string_view quota = next_field(fields);
  lower(limits.cpu_cores, cores_of(quota, next_field(fields)));
  const auto bytes = bytes_of(first_line(group / "memory.max"));
  lower(limits.memory_bytes, bytes);
  lower(limits.memory_free_bytes,
        free_of(group, bytes, "memory.current", {"inactive_file", "active_file"}));
}

void read_v1(const path& group, ControlGroupLimits& limits) {
  lower(limits.cpu_cores,
        cores_of(first_line(group / "cpu.cfs_quota_us"), first_line(group / "cpu.cfs_period_us")));
  const auto bytes = bytes_of(first_line(group / "memory.limit_in_bytes"));
  lower(limits.memory_bytes, bytes);
  lower(limits.memory_free_bytes, free_of(group, bytes, "memory.usage_in_bytes",
                                          {"total_inactive_file", "total_active_file"}));
}

// Calls `read` with the group and those above it, up to the mount.
template <class Read>
void for_each_group(const path& mount, std::string_view group, const Read& read) {
  path relative = path(group).relative_path().lexically_normal();
  // "/../x": of a process whose groups lie beside the container's.
  if (!relative.empty() && *relative.begin() == "..") relative.clear();
  for (; !relative.empty() && relative != "."; relative = relative.parent_path())
    read(mount / relative);
  read(mount);
}

}  // namespace

ControlGroupLimits control_group_limits(const path& root) {
  ControlGroupLimits limits;
  const path mounts = root / "sys/fs/cgroup";
  // Lines "ID:CONTROLLERS:/GROUP"; version 2 is "0::/GROUP".
  const std::string lines = read_text(root / "proc/self/cgroup").value_or("");
  std::string_view rest = lines;
  read_v2(mounts, limits);
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    if (controllers.empty()) {
      const auto read = [&limits](const path& at) { read_v2(at, limits); };
      for_each_group(mounts, group, read);
      for_each_group(mounts / "unified", group, read);
      continue;
    }
    // The mount is named by all its controllers, "cpu,cpuacct", or by one.
    const auto read = [&limits](const path& at) { read_v1(at, limits); };
    for (std::string_view names = controllers; !names.empty();) {
      const std::string_view name = names.substr(0, names.find(','));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      if (name == "cpu" || name == "memory") for_each_group(mounts / name, group, read);
    }
    for_each_group(mounts / controllers, group, read);
  }
  return limits;
}

}  // namespace warpstep::profiler

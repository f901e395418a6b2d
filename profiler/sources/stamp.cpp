#include "profiler/sources/stamp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/control_group.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {
namespace {

using Stamp = nlohmann::ordered_json;
using std::filesystem::path;

// Texts of the system may contain any bytes; JSON is UTF-8.
std::string in_ascii(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

void put(Stamp& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = in_ascii(text);
}
void put_part(Stamp& json, const char* key, Stamp part) {
  if (!part.empty()) json[key] = std::move(part);
}

std::size_t count_lines(std::string_view text, std::string_view beginning) {
  std::size_t count = 0;
  while (!text.empty())
    if (next_line(text).starts_with(beginning)) ++count;
  return count;
}

// Folders "node0", "node1", ...
std::size_t count_nodes(const path& folder) {
  std::size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("node") && parse_number(std::string_view(name).substr(4))) ++count;
  }
  return count;
}

constexpr const char* not_readable = "not readable";

// A file with 0 or 1.
std::string state_of(const path& file, std::string_view on) {
  const std::string line = first_line(file);
  if (line != "0" && line != "1") return not_readable;
  return line == on ? "on" : "off";
}

CpuSet cpus_in(const std::string& affinity) try {
  return parse_cpus(affinity);
} catch (const UsageError&) {
  return {};
}

// CPUs of one governor and range are one entry: a machine with hundreds has few.
Stamp clocks(const path& root, const std::string& affinity) {
  struct Group {
    CpuSet cpus;
    Stamp json, current = Stamp::array();
  };
  std::vector<Group> groups;
  for (const int cpu : cpus_in(affinity)) {
    const path scaling = root / fmt::format("sys/devices/system/cpu/cpu{}/cpufreq", cpu);
    Stamp json = Stamp::object();
    const auto put_mhz = [&](Stamp& to, const char* key, const char* file) {
      const auto khz = parse_number(first_line(scaling / file));
      if (khz) to[key] = static_cast<double>(*khz) / 1000;
    };
    put(json, "governor", first_line(scaling / "scaling_governor"));
    put_mhz(json, "min_mhz", "scaling_min_freq");
    put_mhz(json, "max_mhz", "scaling_max_freq");
    if (json.empty()) continue;
    auto group = std::ranges::find(groups, json, &Group::json);
    if (group == groups.end()) group = groups.insert(group, {{}, json});
    group->cpus.push_back(cpu);
    Stamp now = Stamp::object();
    put_mhz(now, "mhz", "scaling_cur_freq");
    if (!now.empty()) group->current.push_back(now["mhz"]);
  }
  Stamp all = Stamp::array();
  for (Group& group : groups) {
    Stamp json{{"cpus", text_of_cpus(group.cpus)}};
    json.update(group.json);
    if (!group.current.empty()) json["current_mhz"] = std::move(group.current);
    all.push_back(std::move(json));
  }
  return all;
}

// Of which the process may use threads; 0: not readable.
std::size_t physical_cores(const path& cpus, const std::string& affinity) {
  std::set<std::string> cores;
  for (const int cpu : cpus_in(affinity)) {
    const path topology = cpus / fmt::format("cpu{}/topology", cpu);
    std::string threads = first_line(topology / "core_cpus_list");
    if (threads.empty()) threads = first_line(topology / "thread_siblings_list");
    if (threads.empty()) return 0;
    cores.insert(threads);
  }
  return cores.size();
}

Stamp cpu(const path& root, const std::string& affinity) {
  Stamp json = Stamp::object();
  const std::string info = read_text(root / "proc/cpuinfo").value_or("");
  put(json, "model", cpu_model(info));
  if (const std::size_t cores = count_lines(info, "processor")) json["cores"] = cores;
  const path cpus = root / "sys/devices/system/cpu";
  if (const auto mhz = parse_number<double>(value_of(info, "cpu MHz", ':')))
    json["frequency_mhz"] = *mhz;
  else if (const auto khz = parse_number(first_line(cpus / "cpu0/cpufreq/scaling_cur_freq")))
    json["frequency_mhz"] = static_cast<double>(*khz) / 1000;
  if (const std::size_t cores = physical_cores(cpus, affinity)) json["physical_cores"] = cores;
  if (const std::size_t nodes = count_nodes(root / "sys/devices/system/node"))
    json["numa_nodes"] = nodes;
  if (json.empty()) return json;
  json["smt"] = state_of(cpus / "smt/active", "1");
  json["boost"] = state_of(cpus / "intel_pstate/no_turbo", "0");
  if (json["boost"] == not_readable) json["boost"] = state_of(cpus / "cpufreq/boost", "1");
  const Stamp of_cpus = clocks(root, affinity);
  json["clocks"] = of_cpus.empty() ? Stamp(not_readable) : of_cpus;
  return json;
}

Stamp io(const path& root) {
  Stamp all = Stamp::array();
  for (const IoLimit& limit : io_limits(root)) {
    Stamp json = Stamp::object();
    const path device = root / "sys/dev/block" / limit.device;
    put(json, "device", value_of(read_text(device / "uevent").value_or(""), "DEVNAME", '='));
    if (json.empty()) put(json, "device", limit.device);
    const auto put_rate = [&json](const char* key, std::uint64_t rate) {
      if (rate > 0) json[key] = rate;
    };
    put_rate("read_bytes_per_s", limit.read_bytes_per_s);
    put_rate("reads_per_s", limit.reads_per_s);
    put_rate("write_bytes_per_s", limit.write_bytes_per_s);
    put_rate("writes_per_s", limit.writes_per_s);
    all.push_back(std::move(json));
  }
  return all;
}

Stamp control_group(const path& root) {
  Stamp json = Stamp::object();
  if (const auto cores = cpu_quota(root)) json["cpu_quota_cores"] = *cores;
  if (const auto weight = low_cpu_weight(root)) json["cpu_weight"] = *weight;
  if (const auto bytes = memory_limit(root)) json["memory_limit_bytes"] = *bytes;
  put_part(json, "io_limits", io(root));
  return json;
}

// How the kernel ranks this process among others, where it is not as usual: by /proc/self/stat,
// whose second field, a name in parentheses, may have any bytes.
Stamp scheduling(const path& root) {
  constexpr std::size_t nice_field = 19, policy_field = 41;
  constexpr std::array<const char*, 7> policies{"", "fifo", "rr", "batch", "", "idle", "deadline"};
  Stamp json = Stamp::object();
  const std::string text = read_text(root / "proc/self/stat").value_or("");
  std::string_view rest = std::string_view(text).substr(std::min(text.size(), text.rfind(')') + 1));
  for (std::size_t field = 3; field <= policy_field; ++field) {
    const std::string_view value = next_field(rest);
    if (field == nice_field)
      if (const auto nice = parse_number<int>(value); nice && *nice != 0) json["nice"] = *nice;
    if (field == policy_field)
      if (const auto policy = parse_number(value); policy && *policy < policies.size())
        put(json, "policy", policies[*policy]);
  }
  return json;
}

Stamp load_average(const path& root) {
  Stamp json = Stamp::array();
  const std::string line = first_line(root / "proc/loadavg");
  std::string_view fields = line;
  for (int minutes = 0; minutes < 3; ++minutes)
    if (const auto load = parse_number<double>(next_field(fields))) json.push_back(*load);
  return json.size() == 3 ? json : Stamp();
}

// The word in brackets of "always [madvise] never".
std::string chosen(const std::string& line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']', open == line.npos ? 0 : open);
  if (open == line.npos || close == line.npos) return {};
  return line.substr(open + 1, close - open - 1);
}

// Versions of the loaded libraries that affect speed and results, from their file names:
// .../libcudnn.so.9.13.0.
Stamp libraries(const path& root) {
  static constexpr std::array<std::string_view, 10> known{
      "libcuda", "libcudart", "libcudnn",     "libcublasLt", "libcupti",
      "libnccl", "libnvrtc",  "libnvidia-ml", "libgomp",     "libmpi"};
  Stamp json = Stamp::object();
  const std::string maps = read_text(root / "proc/self/maps").value_or("");
  std::string_view rest = maps;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    std::string_view tail = line.substr(std::min(line.size(), line.rfind('/') + 1));
    const std::string_view file = next_field(tail);  // " (deleted)" may follow
    const std::size_t end = file.find(".so.");
    if (end == file.npos || end + 4 == file.size()) continue;
    const std::string_view name = file.substr(0, end);
    if (std::find(known.begin(), known.end(), name) != known.end())
      json[std::string(name)] = in_ascii(std::string(file.substr(end + 4)));
  }
  return json;
}

Stamp described(const std::vector<GpuPlace>& gpus, const NvmlFunctions& functions) {
  Stamp all = Stamp::array();
  if (gpus.empty()) return all;
  Nvml nvml(functions, gpus);
  const std::string driver = nvml.driver_version();
  for (const Nvml::Gpu& gpu : nvml.describe()) {
    Stamp json = Stamp::object();
    put(json, "name", gpu.name);
    put(json, "driver", driver);
    if (gpu.power_limit_w > 0) json["power_limit_w"] = gpu.power_limit_w;
    if (gpu.persistence >= 0) json["persistence"] = gpu.persistence == 1;
    const auto put_clock = [&json](const char* key, unsigned mhz) {
      if (mhz > 0) json[key] = mhz;
    };
    put_clock("sm_clock_mhz", gpu.sm_clock_mhz);
    put_clock("application_sm_clock_mhz", gpu.application_sm_clock_mhz);
    put_clock("max_sm_clock_mhz", gpu.max_sm_clock_mhz);
    put_clock("memory_clock_mhz", gpu.memory_clock_mhz);
    put_clock("max_memory_clock_mhz", gpu.max_memory_clock_mhz);
    if (gpu.ecc >= 0) json["ecc"] = gpu.ecc == 1;
    json["id"] = gpu.number;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace

Stamp openmp_stamp() {
  Stamp json = Stamp::object();
  const auto value_of = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  for (const char* name : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_PROC_BIND",
                           "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    put(json, name, value_of(name));
  const std::string policy = value_of("OMP_WAIT_POLICY"), spins = value_of("GOMP_SPINCOUNT");
  if (policy == "passive" && spins == "5000") return json;  // the engine's own: load_backend()
  put(json, "OMP_WAIT_POLICY", policy);
  put(json, "GOMP_SPINCOUNT", spins);
  return json;
}

Stamp machine_stamp(const path& root, const std::string& affinity,
                    const std::vector<GpuPlace>& gpus) {
  std::string why;
  return machine_stamp(root, gpus.empty() ? NvmlFunctions() : load_nvml(&why), affinity, gpus);
}

Stamp machine_stamp(const path& root, const NvmlFunctions& nvml, const std::string& given,
                    const std::vector<GpuPlace>& gpus) {
  Stamp json = Stamp::object();
  const std::string status = read_text(root / "proc/self/status").value_or("");
  const std::string affinity = given.empty() ? value_of(status, "Cpus_allowed_list", ':') : given;
  put_part(json, "cpu", cpu(root, affinity));
  put(json, "affinity", affinity);
  put_part(json, "cgroup", control_group(root));
  put(json, "kernel", first_line(root / "proc/sys/kernel/osrelease"));
  put(json, "boot", first_line(root / "proc/sys/kernel/random/boot_id"));
  put_part(json, "scheduling", scheduling(root));
  put_part(json, "load_average", load_average(root));
  put(json, "transparent_huge_pages",
      chosen(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled")));
  put_part(json, "libraries", libraries(root));
  put_part(json, "gpus", described(gpus, nvml));
  return json;
}

}  // namespace warpstep::profiler

#include "tools/warpstep/host.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace warpstep::tools {
namespace {

// The value of the first line "key<separator>value" of a file, without blanks and quotes around it.
std::string value_of(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string::npos || line.find_first_not_of(" \t", key.size()) != at) continue;
    const std::size_t first = line.find_first_not_of(" \t\"", at + 1);
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t\"") + 1 - first);
  }
  return {};
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Cores that the control group's quota is worth, rounded up: "max 100000" or "150000 100000".
std::optional<int> quota_cores() {
  std::istringstream line(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0;
  double period = 0;
  if (!(line >> quota >> period) || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int allowed_cores(int of_machine) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : of_machine;
  if (const auto quota = quota_cores()) cores = std::min(cores, *quota);
  return cores;
}

std::string vector_instructions() {
  const std::string flags = fmt::format(" {} {} ", value_of("/proc/cpuinfo", "flags", ':'),
                                        value_of("/proc/cpuinfo", "Features", ':'));
  constexpr std::array known{"amx_bf16", "avx512_bf16", "avx512f", "avx2",
                             "avx",      "sse4_2",      "sve",     "asimd"};
  for (const std::string_view flag : known)
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) return std::string(flag);
  return "unknown";
}

std::string or_unknown(std::string text) {
  if (text.empty()) return "unknown";
  return text;
}

}  // namespace

Host host() {
  Host result;
  utsname names{};
  if (uname(&names) == 0) result.name = names.nodename;
  result.system = or_unknown(value_of("/etc/os-release", "PRETTY_NAME", '='));
  if (names.release[0] != 0) result.system += std::string(", Linux ") + names.release;
  result.cpu = or_unknown(value_of("/proc/cpuinfo", "model name", ':'));
  result.vector_instructions = vector_instructions();
  result.cores_of_machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  result.cores = allowed_cores(result.cores_of_machine);
  result.memory_of_machine_bytes =
      number(value_of("/proc/meminfo", "MemTotal", ':')).value_or(0) * 1024;
  result.memory_bytes =
      std::min(result.memory_of_machine_bytes,
               number(first_line("/sys/fs/cgroup/memory.max")).value_or(UINT64_MAX));
  return result;
}

}  // namespace warpstep::tools

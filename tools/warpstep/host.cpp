#include "tools/warpstep/host.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "profiler/sources/limits.h"
#include "profiler/sources/proc_file.h"

namespace warpstep::tools {
namespace {

using profiler::value_of;

std::string text_of(const char* path) {
  return profiler::read_text(path).value_or("");
}

int allowed_cores(int of_machine, const std::optional<double>& quota) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : of_machine;
  // A quota is worth its cores rounded up.
  if (quota && *quota < cores) cores = std::max(1, static_cast<int>(std::ceil(*quota)));
  return cores;
}

std::string vector_instructions(const std::string& cpuinfo) {
  const std::string flags =
      fmt::format(" {} {} ", value_of(cpuinfo, "flags", ':'), value_of(cpuinfo, "Features", ':'));
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
  result.system = or_unknown(value_of(text_of("/etc/os-release"), "PRETTY_NAME", '='));
  if (names.release[0] != 0) result.system += std::string(", Linux ") + names.release;
  const std::string cpuinfo = text_of("/proc/cpuinfo");
  const profiler::ControlGroupLimits limits = profiler::control_group_limits();
  result.cpu = or_unknown(value_of(cpuinfo, "model name", ':'));
  result.vector_instructions = vector_instructions(cpuinfo);
  result.cores_of_machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  result.cores = allowed_cores(result.cores_of_machine, limits.cpu_cores);
  const std::string total = value_of(text_of("/proc/meminfo"), "MemTotal", ':');  // "16384 kB"
  std::string_view fields = total;
  result.memory_of_machine_bytes =
      profiler::parse_number(profiler::next_field(fields)).value_or(0) * 1024;
  result.memory_bytes =
      std::min(result.memory_of_machine_bytes, limits.memory_bytes.value_or(UINT64_MAX));
  return result;
}

}  // namespace warpstep::tools

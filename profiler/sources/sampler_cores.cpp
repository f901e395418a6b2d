#include "profiler/sources/sampler_cores.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/cpus.h"

namespace warpstep::profiler {
namespace {

using std::filesystem::path;

std::optional<std::uint64_t> number_of(const path& file) {
  return parse_number(first_line(file));
}

// "key value" lines: the sum of the values of these keys.
std::optional<std::uint64_t> sum_of(std::string_view text,
                                    std::initializer_list<std::string_view> keys) {
  std::uint64_t sum = 0;
  bool any = false;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (std::ranges::find(keys, next_field(line)) == keys.end()) continue;
    sum += parse_number(next_field(line)).value_or(0);
    any = true;
  }
  return any ? std::optional(sum) : std::nullopt;
}

std::string thread_name(std::uint32_t thread, const std::map<std::uint32_t, std::string>& names,
                        std::uint32_t process) {
  const auto at = names.find(thread);
  if (at == names.end()) return thread == process ? "main" : "other threads";
  return at->second.starts_with("kernels ") ? "kernels" : at->second;
}

void read_threads(const CoreSources& sources, const std::map<std::uint32_t, std::string>& names,
                  CoreReading& reading) {
  const path tasks = sources.proc / "self/task";
  struct Close {
    void operator()(DIR* folder) const { ::closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(::opendir(tasks.c_str()));
  if (!folder) return;
  std::vector<std::uint32_t> threads;
  while (const dirent* const entry = ::readdir(folder.get()))
    if (const auto thread = parse_number<std::uint32_t>(entry->d_name)) threads.push_back(*thread);
  if (threads.empty()) return;
  std::set<int> team;
  const std::uint32_t process = sources.proc == "/proc" ? static_cast<std::uint32_t>(::getpid())
                                                        : *std::ranges::min_element(threads);
  for (const std::uint32_t thread : threads) {
    const auto text = read_text(tasks / std::to_string(thread) / "schedstat");
    const auto times = text ? parse_schedstat(*text) : std::nullopt;
    if (!times) continue;  // it has ended, or the kernel does not count
    const std::string name = thread_name(thread, names, process);
    if (sources.proc == "/proc" && (name == "main" || name == "kernels"))
      for (const int cpu : allowed_cpus(static_cast<int>(thread))) team.insert(cpu);
    reading.threads.emplace(thread, ThreadReading{*times, name});
  }
  if (!team.empty()) reading.team_cpus = static_cast<int>(team.size());
}

void read_pressure(const path& folder, const char* file, const std::string& metric,
                   CoreReading& reading) {
  const auto text = read_text(folder / file);
  if (const auto us = text ? parse_pressure(*text) : std::nullopt)
    reading.pressure_us[metric] = *us;
}

void read_process(const path& proc, CoreReading& reading) {
  const std::string stat = read_text(proc / "self/stat").value_or("");
  if (const std::size_t name_end = stat.rfind(')'); name_end != stat.npos) {
    std::string_view rest = std::string_view(stat).substr(name_end + 1);
    for (int field = 3; field < 12; ++field) next_field(rest);
    reading.major_faults = parse_number(next_field(rest));
  }
  rusage use{};
  if (proc == "/proc" && ::getrusage(RUSAGE_SELF, &use) == 0)
    reading.switches = static_cast<std::uint64_t>(use.ru_nivcsw);
}

}  // namespace

CoreSources find_core_sources(const path& proc, const path& root) {
  const ControlGroups groups = control_groups(root);
  CoreSources sources{.proc = proc, .cpu_groups = {}, .memory_groups = {}, .pressure_group = {}};
  for (const auto* const folders : {&groups.v2, &groups.cpu})
    for (const path& group : *folders)
      if (cpu_quota_of(group)) sources.cpu_groups.push_back(group);
  sources.memory_groups = memory_groups(groups);
  std::error_code none;
  if (!groups.v2.empty() && std::filesystem::exists(groups.v2.front() / "cpu.pressure", none))
    sources.pressure_group = groups.v2.front();
  // Most systems let only root read the energy. Subdomains (intel-rapl:0:0) are parts of packages.
  for (int number = 0;; ++number) {
    const path domain = root / "sys/class/powercap" / fmt::format("intel-rapl:{}", number);
    if (!std::filesystem::exists(domain, none)) break;
    if (first_line(domain / "name").starts_with("package") && number_of(domain / "energy_uj"))
      sources.packages.push_back(domain);
  }
  return sources;
}

std::optional<std::uint64_t> parse_pressure(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const std::size_t total = line.find("total=");
    if (line.starts_with("some ") && total != line.npos)
      return parse_number(line.substr(total + 6));
  }
  return std::nullopt;
}

QuotaReading parse_cpu_stat(std::string_view text) {
  const auto us = sum_of(text, {"throttled_usec"});
  return {.periods = sum_of(text, {"nr_periods"}).value_or(0),
          .throttled = sum_of(text, {"nr_throttled"}).value_or(0),
          .throttled_ns = us ? 1000 * *us : sum_of(text, {"throttled_time"}).value_or(0)};
}

CoreReading read_cores(const CoreSources& sources,
                       const std::map<std::uint32_t, std::string>& names) {
  CoreReading reading;
  reading.at_ns = now_ns();
  read_threads(sources, names, reading);
  read_process(sources.proc, reading);
  for (const path& group : sources.cpu_groups)
    if (const auto text = read_text(group / "cpu.stat"))
      reading.quotas.push_back(parse_cpu_stat(*text));
  for (const char* const of : {"cpu", "memory", "io"}) {
    read_pressure(sources.proc / "pressure", of, fmt::format("{} pressure %", of), reading);
    if (!sources.pressure_group.empty())
      read_pressure(sources.pressure_group, fmt::format("{}.pressure", of).c_str(),
                    fmt::format("group {} pressure %", of), reading);
  }
  reading.memory = tightest_memory(sources.memory_groups);
  if (reading.memory) reading.refaults = reading.memory->refaults;
  if (const auto vmstat = read_text(sources.proc / "vmstat")) {
    if (!reading.refaults) reading.refaults = sum_of(*vmstat, {"workingset_refault_file"});
    reading.reclaimed = sum_of(
        *vmstat, {"pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"});
    reading.swapped = sum_of(*vmstat, {"pswpin", "pswpout"});
  }
  for (const path& package : sources.packages)
    if (const auto energy = number_of(package / "energy_uj"))
      reading.packages.push_back({*energy, number_of(package / "max_energy_range_uj").value_or(0)});
  return reading;
}

std::vector<Metric> levels(const CoreReading& now) {
  std::vector<Metric> metrics;
  double kernels = 0;
  for (const auto& [id, thread] : now.threads) kernels += thread.name == "kernels" ? 1 : 0;
  if (kernels > 0) metrics.push_back({"kernels threads", kernels});
  if (kernels > 0 && now.team_cpus)
    metrics.push_back({"kernels cpus", static_cast<double>(*now.team_cpus)});
  if (now.memory) {
    metrics.push_back({"memory limit bytes", static_cast<double>(now.memory->limit_bytes)});
    metrics.push_back({"memory limit used bytes", static_cast<double>(now.memory->used_bytes)});
  }
  return metrics;
}

namespace {

// Counters that went backwards give nothing.
void add_rate(std::vector<Metric>& metrics, const std::string& name,
              std::optional<std::uint64_t> before, std::optional<std::uint64_t> after,
              double per_second) {
  if (before && after && *after >= *before)
    metrics.push_back({name, static_cast<double>(*after - *before) * per_second});
}

void add_threads(const CoreReading& before, const CoreReading& after, double percent,
                 std::vector<Metric>& metrics) {
  std::map<std::string, ThreadReading> sums;
  for (const auto& [id, now] : after.threads) {
    const auto then = before.threads.find(id);
    const bool is_same = then != before.threads.end() && then->second.on_cpu_ns <= now.on_cpu_ns &&
                         then->second.delay_ns <= now.delay_ns;
    ThreadReading& sum = sums[now.name];
    sum.on_cpu_ns += now.on_cpu_ns - (is_same ? then->second.on_cpu_ns : 0);
    sum.delay_ns += now.delay_ns - (is_same ? then->second.delay_ns : 0);
  }
  for (const auto& [name, sum] : sums) {
    metrics.push_back({name + " on cpu %", static_cast<double>(sum.on_cpu_ns) * percent});
    metrics.push_back({name + " run delay %", static_cast<double>(sum.delay_ns) * percent});
  }
}

// Of the group that was throttled most: a limit on any level stops all below it.
void add_quotas(const CoreReading& before, const CoreReading& after, double per_second,
                std::vector<Metric>& metrics) {
  if (before.quotas.size() != after.quotas.size() || after.quotas.empty()) return;
  std::optional<QuotaReading> most;
  for (std::size_t i = 0; i < after.quotas.size(); ++i) {
    const QuotaReading &then = before.quotas[i], &now = after.quotas[i];
    if (now.periods < then.periods || now.throttled < then.throttled ||
        now.throttled_ns < then.throttled_ns)
      continue;
    const QuotaReading since{.periods = now.periods - then.periods,
                             .throttled = now.throttled - then.throttled,
                             .throttled_ns = now.throttled_ns - then.throttled_ns};
    if (!most || since.throttled > most->throttled) most = since;
  }
  if (!most) return;
  metrics.push_back({"cpu periods/s", static_cast<double>(most->periods) * per_second});
  metrics.push_back({"cpu throttled periods/s", static_cast<double>(most->throttled) * per_second});
  metrics.push_back(
      {"cpu throttled %", static_cast<double>(most->throttled_ns) * 1e-7 * per_second});
}

// Of all packages together.
void add_power(const CoreReading& before, const CoreReading& after, double per_second,
               std::vector<Metric>& metrics) {
  if (after.packages.empty() || before.packages.size() != after.packages.size()) return;
  std::uint64_t microjoules = 0;
  for (std::size_t i = 0; i < after.packages.size(); ++i) {
    const EnergyReading &then = before.packages[i], &now = after.packages[i];
    const bool began_again = now.microjoules < then.microjoules;
    if (began_again && now.range < then.microjoules) return;
    microjoules += now.microjoules - then.microjoules + (began_again ? now.range : 0);
  }
  metrics.push_back({"cpu power W", static_cast<double>(microjoules) * 1e-6 * per_second});
}

}  // namespace

std::vector<Metric> rates(const CoreReading& before, const CoreReading& after) {
  std::vector<Metric> metrics;
  if (after.at_ns <= before.at_ns) return metrics;
  const double ns = static_cast<double>(after.at_ns - before.at_ns);
  const double per_second = 1e9 / ns;
  add_threads(before, after, 100 / ns, metrics);
  add_quotas(before, after, per_second, metrics);
  add_power(before, after, per_second, metrics);
  for (const auto& [name, us] : after.pressure_us) {
    const auto then = before.pressure_us.find(name);
    if (then != before.pressure_us.end())
      add_rate(metrics, name, then->second, us, 1e-4 * per_second);  // 1e6 us/s is 100 %
  }
  add_rate(metrics, "involuntary switches/s", before.switches, after.switches, per_second);
  add_rate(metrics, "major faults/s", before.major_faults, after.major_faults, per_second);
  add_rate(metrics, "reclaimed pages/s", before.reclaimed, after.reclaimed, per_second);
  add_rate(metrics, "swapped pages/s", before.swapped, after.swapped, per_second);
  add_rate(metrics, "refaulted pages/s", before.refaults, after.refaults, per_second);
  if (before.memory && after.memory)
    add_rate(metrics, "memory limit hits/s", before.memory->hits, after.memory->hits, per_second);
  return metrics;
}

}  // namespace warpstep::profiler

#include "profiler/sources/sampler_programs.h"

#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/core/clock.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t most_shown_programs = 3, most_program_names = 32;
constexpr double least_percent = 5;  // of a core

// A program chooses its name freely.
std::string printable_name(std::string_view stat) {
  const std::size_t begin = stat.find('('), end = stat.rfind(')');
  if (begin == stat.npos || end == stat.npos || end <= begin) return "";
  std::string name(stat.substr(begin + 1, end - begin - 1));
  for (char& c : name)
    if (c < ' ' || c > '~') c = '?';
  return name;
}

// By the policy: fifo, round robin or deadline.
bool is_real_time(std::string_view stat) {
  constexpr std::size_t policy_field = 41;
  std::string_view rest = stat.substr(std::min(stat.size(), stat.rfind(')') + 1)), value;
  for (std::size_t field = 3; field <= policy_field; ++field) value = next_field(rest);
  return value == "1" || value == "2" || value == "6";
}

std::string name_of(const std::filesystem::path& proc, std::string_view process) {
  const auto stat = read_text(proc / process / "stat");
  return stat ? printable_name(*stat) : "";
}

}  // namespace

std::string tracer_of(const std::filesystem::path& proc) {
  const auto status = read_text(proc / "self/status");
  const std::string tracer = status ? value_of(*status, "TracerPid", ':') : "";
  if (tracer.empty() || tracer == "0") return "";
  const std::string name = name_of(proc, tracer);
  return name.empty() ? "process " + tracer : name;  // of another container
}

ProgramReading read_programs(const std::filesystem::path& proc,
                             const std::vector<Sibling>& siblings) {
  ProgramReading reading{.at_ns = now_ns(), .processes = {}};
  const std::string self = first_line(proc / "self/stat");
  const auto own = parse_number<int>(std::string_view(self).substr(0, self.find(' ')));
  struct Close {
    void operator()(DIR* folder) const { ::closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(::opendir(proc.c_str()));
  while (const dirent* const entry = folder ? ::readdir(folder.get()) : nullptr) {
    const auto process = parse_number<int>(entry->d_name);
    if (!process || process == own) continue;
    if (std::ranges::find(siblings, *process, &Sibling::process) != siblings.end()) continue;
    const auto stat = read_text(proc / entry->d_name / "stat");
    if (!stat) continue;  // it has ended
    const auto ticks = parse_process_ticks(*stat);
    std::string name = printable_name(*stat);
    if (!ticks || name.empty()) continue;
    if (is_real_time(*stat)) name += " (real-time)";
    reading.processes.emplace(*process, ProgramReading::Process{name, *ticks});
  }
  return reading;
}

std::vector<Metric> rates(const ProgramReading& before, const ProgramReading& after,
                          double ticks_per_second) {
  if (after.at_ns <= before.at_ns) return {};
  const double seconds = static_cast<double>(after.at_ns - before.at_ns) * 1e-9;
  std::map<std::string, double> percent;
  for (const auto& [id, now] : after.processes) {
    const auto then = before.processes.find(id);
    const bool is_same = then != before.processes.end() && then->second.ticks <= now.ticks;
    const std::uint64_t ticks = now.ticks - (is_same ? then->second.ticks : 0);
    percent[now.name] += 100 * static_cast<double>(ticks) / ticks_per_second / seconds;
  }
  std::vector<Metric> metrics;
  for (const auto& [name, value] : percent)
    if (value >= least_percent) metrics.push_back({fmt::format("program {} cpu %", name), value});
  std::ranges::stable_sort(metrics, std::ranges::greater(), &Metric::value);
  if (metrics.size() > most_shown_programs) metrics.resize(most_shown_programs);
  return metrics;
}

std::vector<Metric> OtherPrograms::look(const std::filesystem::path& proc,
                                        const std::vector<Sibling>& siblings,
                                        double ticks_per_second) {
  if (now_ns() >= next_ns_) read(proc, siblings, ticks_per_second);
  std::vector<Metric> metrics = metrics_;
  if (const std::string tracer = tracer_of(proc); !tracer.empty())
    metrics.push_back({fmt::format("traced by {}", tracer), 1});
  return metrics;
}

void OtherPrograms::read(const std::filesystem::path& proc, const std::vector<Sibling>& siblings,
                         double ticks_per_second) {
  const std::uint64_t begin = now_ns();
  ProgramReading now = read_programs(proc, siblings);
  next_ns_ = begin + rarely_ * (now_ns() - begin);
  metrics_.clear();
  if (last_) {
    metrics_ = rates(*last_, now, ticks_per_second);
    std::erase_if(metrics_, [&](const Metric& metric) {
      if (names_.size() < most_program_names) names_.insert(metric.name);
      return !names_.contains(metric.name);
    });
    metrics_.push_back({"other processes", static_cast<double>(now.processes.size())});
  }
  last_ = std::move(now);
}

}  // namespace warpstep::profiler

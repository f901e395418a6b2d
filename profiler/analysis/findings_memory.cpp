// Findings about the host's memory: what the kernel had to find first, and what grows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/findings.h"

namespace warpstep::profiler {
namespace {

constexpr double page_bytes = 4096, mib = 1 << 20;

}  // namespace

void find_short_memory(const Facts& facts, std::vector<Finding>& findings) {
  const Contention& lost = facts.analysis.contention;
  if (!is_short_of_memory(lost)) return;
  std::string evidence =
      fmt::format("{:.0f} major faults per second", lost.major_faults_per_s.value_or(0));
  if (lost.memory_limit_bytes)
    evidence += fmt::format(
        ", {:.0f} of the group's {:.0f} MiB used (limit hit {:.1f} times per "
        "second)",
        lost.memory_used_bytes.value_or(0) / mib, *lost.memory_limit_bytes / mib,
        lost.limit_hits_per_s.value_or(0));
  if (lost.memory_pressure)
    evidence += fmt::format(", something waited for memory {} of the time",
                            quantity(*lost.memory_pressure, Unit::share));
  if (lost.swapped_pages_per_s.value_or(0) > 0)
    evidence += fmt::format(", {:.1f} MiB/s swapped", *lost.swapped_pages_per_s * page_bytes / mib);
  findings.push_back(
      {.key = "short-memory",
       .text = "Memory is short: the kernel reclaims pages that the run needs.",
       .evidence = evidence,
       .advice = lost.memory_limit_bytes
                     ? "raise the group's memory limit (docker --memory, Kubernetes limits.memory, "
                       "systemd's MemoryHigh and MemoryMax: memory.high, memory.max), or use a "
                       "smaller batch"
                     : "stop other programs, or use a smaller batch",
       .flag = facts.smaller_batch()});
}

namespace {

struct Level {
  double seconds, bytes;
};

// The process's own memory after the time in which buffers and caches fill: the first quarter of
// the steps, at least the first step, which is the first to touch gradients and moments, and where
// decoded images are kept the first epoch.
std::vector<Level> settled_memory(const Facts& facts) {
  const std::vector<Step>& steps = facts.session.steps;
  const std::string tier = fields::text(facts.session.loader, "tier");
  auto settled =
      steps.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, steps.size() / 4));
  if ((tier == "mapped" || tier == "resident") && !facts.reads_text())
    settled =
        std::max(settled, std::ranges::upper_bound(steps, steps.front().epoch, {}, &Step::epoch));
  std::vector<Level> levels;
  if (settled == steps.end()) return levels;
  for (const Sample& sample : facts.session.samples)
    if (sample.at_ns >= settled->begin_ns && sample.at_ns <= steps.back().end_ns &&
        facts.session.name(sample.name) == "process private bytes")
      levels.push_back(
          {static_cast<double>(sample.at_ns - settled->begin_ns) * 1e-9, sample.value});
  return levels;
}

// Bytes per second, where a line explains how the levels differ; else 0.
double steady_rate(const std::vector<Level>& levels) {
  constexpr double least_explained = 0.9;  // of the variance; 0.75 of one jump
  const auto n = static_cast<double>(levels.size());
  double seconds = 0, bytes = 0;
  for (const Level& level : levels) seconds += level.seconds / n, bytes += level.bytes / n;
  double xx = 0, xy = 0, yy = 0;
  for (const Level& level : levels) {
    const double x = level.seconds - seconds, y = level.bytes - bytes;
    xx += x * x, xy += x * y, yy += y * y;
  }
  return xx > 0 && xy > 0 && xy * xy >= least_explained * xx * yy ? xy / xx : 0;
}

}  // namespace

// Nothing that a run needs grows for ever.
void find_memory_growth(const Facts& facts, std::vector<Finding>& findings) {
  constexpr std::size_t least_samples = 10;
  constexpr double soon_seconds = 3600;
  constexpr double least_rise = 32 * mib, least_share = 0.05;  // of what there was
  if (facts.session.steps.empty()) return;
  const std::vector<Level> levels = settled_memory(facts);
  if (levels.size() < least_samples) return;
  const double rate = steady_rate(levels), rise = levels.back().bytes - levels.front().bytes;
  if (rate <= 0 || rise < std::max(least_rise, least_share * levels.front().bytes)) return;
  const double seconds = levels.back().seconds - levels.front().seconds;
  Finding finding{
      .key = "memory-growth",
      .text = "The process's memory keeps growing.",
      .evidence = fmt::format(
          "its private memory grew from {:.0f} MiB to {:.0f} MiB in {}, steadily: {:.2f} MiB/s",
          levels.front().bytes / mib, levels.back().bytes / mib, quantity(seconds * 1e9, Unit::ns),
          rate / mib),
      .advice =
          "look for what keeps memory from step to step: an op, a plugin or a transform of "
          "your own, or a library loaded into the program (heaptrack and valgrind "
          "--tool=massif name the place); until then --checkpoint-every N saves the work"};
  if (const auto left = available_bytes(facts.session)) {
    finding.evidence += fmt::format("; the {:.0f} MiB that are left last {} at this rate",
                                    *left / mib, quantity(*left / rate * 1e9, Unit::ns));
    finding.ends_run = *left / rate < soon_seconds;
  }
  findings.push_back(finding);
}

}  // namespace warpstep::profiler

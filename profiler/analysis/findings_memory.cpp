// Findings about the host's memory: what the kernel had to find first, and what grows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/stall.h"

namespace warpstep::profiler {
namespace {

constexpr double page_bytes = 4096, mib = 1 << 20;

}  // namespace

bool faults_in_set(const Facts& facts) {
  constexpr double most_of_work = 0.5, few_a_second = 10, few_a_sample = 0.1, slow_fault_ns = 20e6;
  const LoaderView& view = facts.analysis.loader;
  if (!facts.analysis.stall.is_stalled || view.work_ns <= 0 || facts.batch() <= 0) return false;
  if (is_loose(facts.view) || facts.option("data_io", "mmap") != "mmap") return false;
  const double off_ns = view.asleep_ns + view.blocked_ns,
               per_second = facts.analysis.contention.major_faults_per_s.value_or(0),
               per_batch = per_second * 1e-9 * facts.step_ns;
  if (off_ns < most_of_work * view.work_ns || per_second < few_a_second) return false;
  return per_batch >= few_a_sample * static_cast<double>(facts.batch()) ||
         per_batch * slow_fault_ns >= off_ns;
}

bool rereads_set(const Facts& facts) {
  constexpr double least_blocked = 0.25, least_refaults = 0.25;
  const LoaderView& view = facts.analysis.loader;
  if (!facts.analysis.stall.is_stalled || view.work_ns <= 0 || view.samples.empty()) return false;
  if (view.asleep_ns + view.blocked_ns < least_blocked * view.work_ns) return false;
  double pages = 0;
  for (const SampleTime& sample : view.samples)
    pages += std::max(1.0, std::ceil(sample.bytes / page_bytes));
  pages *= static_cast<double>(view.batch) / static_cast<double>(view.samples.size());
  const double refaults =
      facts.analysis.contention.refaults_per_s.value_or(0) * 1e-9 * facts.step_ns;
  return refaults >= least_refaults * pages;
}

bool lacks_set_in_memory(const Facts& facts) {
  return faults_in_set(facts) || rereads_set(facts);
}

namespace {

constexpr const char* raise_limit =
    "raise the group's memory limit (docker --memory, Kubernetes limits.memory, systemd's "
    "MemoryHigh and MemoryMax: memory.high, memory.max)";

std::string waits_of_workers(const Facts& facts) {
  const LoaderView& view = facts.analysis.loader;
  return fmt::format("for {} of their time workers neither ran nor wanted a core{}",
                     quantity((view.asleep_ns + view.blocked_ns) / view.work_ns, Unit::share),
                     read_limits_text(facts.session));
}

// A fault reads some pages of one sample, and its worker does nothing else meanwhile.
std::string faults_text(const Facts& facts) {
  const double faults = facts.analysis.contention.major_faults_per_s.value_or(0);
  return fmt::format("{:.0f} major faults per second, {:.2f} a sample", faults,
                     faults * 1e-9 * facts.step_ns / static_cast<double>(facts.batch()));
}

std::string refaults_text(const Facts& facts) {
  const double pages = facts.analysis.contention.refaults_per_s.value_or(0);
  return fmt::format(
      "{:.0f} pages of files per second ({:.3g} MB/s) were read again after the kernel had dropped "
      "them",
      pages, pages * page_bytes / 1e6);
}

}  // namespace

void find_set_not_in_memory(const Facts& facts, std::vector<Finding>& findings) {
  if (!lacks_set_in_memory(facts)) return;
  const bool is_mapped = faults_in_set(facts), rereads = rereads_set(facts);
  Finding finding{
      .key = "set-not-in-memory",
      .text = is_mapped
                  ? "Pages of the mapped set are not in memory: workers wait until each is read."
                  : "The set does not stay in memory: each epoch reads it from the disk again.",
      .evidence = fmt::format("{} of {} per step waiting for the loader; {}{}{}; {}",
                              quantity(facts.analysis.stall.wait_ns, Unit::ns),
                              quantity(facts.step_ns, Unit::ns),
                              is_mapped ? faults_text(facts) : "", is_mapped && rereads ? "; " : "",
                              rereads ? refaults_text(facts) : "", waits_of_workers(facts))};
  const LoaderModel model(facts.analysis.loader, facts.view);
  const std::optional<RemedyChoice> kept = keep_decoded(facts, model);
  if (kept) {
    finding.flag = kept->flag;
    finding.advice = kept->advice + "; ";
  } else if (is_mapped) {
    // A fault also reads neighbours, which is better where these are still there when it is their
    // turn.
    finding.flag = "--data-io pread";
    finding.advice =
        "try --data-io pread: it reads a sample at once, not page by page, which is faster unless "
        "pages stay until their neighbours are needed; ";
  }
  if (is_mapped && !rereads)
    finding.advice +=
        "if this lasts longer than an epoch, the set does not stay in memory: raise the memory "
        "limit, or end what fills or drops the kernel's cache of files";
  else if (facts.analysis.contention.memory_limit_bytes)
    finding.advice += raise_limit;
  else
    finding.advice +=
        "use a machine with more memory, end other programs that fill it, or copy the set to a "
        "faster disk";
  // How long a read takes that needs no disk is not known. Kept images need no decoding, either.
  finding.gain_most_ns = facts.analysis.stall.wait_ns;
  if (kept) finding.gain_most_ns = std::max(finding.gain_most_ns, kept->gain.most_ns);
  finding.gain_ns = finding.gain_most_ns / 2;
  findings.push_back(finding);
}

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
  Finding finding{.key = "short-memory",
                  .text = "Memory is short: the kernel reclaims pages that the run needs.",
                  .evidence = evidence};
  finding.advice = lost.memory_limit_bytes ? raise_limit : "stop other programs";
  if (!lacks_set_in_memory(facts)) {  // whose pages are as many with any batch
    finding.advice += ", or use a smaller batch";
    finding.flag = facts.smaller_batch();
  }
  findings.push_back(finding);
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

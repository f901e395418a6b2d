#include "profiler/analysis/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
Facts::Facts(const View& view_, const Analysis& analysis_)
    : view(view_),
      session(view_.session),
      analysis(analysis_),
      options(view_.options),
      step_ns(analysis_.breakdown.step_ns),
      steps(static_cast<double>(std::max<std::size_t>(1, analysis_.breakdown.counted))),
      on_host(view_.session.computes_on_host()),
      waits_for_data(analysis_.stall.is_stalled) {}

std::string Facts::larger_batch() const {
  return batch() > 0 ? fmt::format("--batch {}", 2 * batch()) : "--batch";
}

std::string Facts::smaller_batch() const {
  return batch() > 1 ? fmt::format("--batch {}", batch() / 2) : "";
}

std::string Facts::of_step(double ns) const {
  return fmt::format("{} of {} per step ({})", quantity(ns, Unit::ns), quantity(step_ns, Unit::ns),
                     quantity(ns / step_ns, Unit::share));
}

double Facts::range_ns(std::string_view name) const {
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::range && session.name(span.name) == name &&
        view.in_windows(span.begin_ns))
      sum += static_cast<double>(span.end_ns - span.begin_ns);
  return sum / steps;
}

std::vector<Finding> find_findings(const View& view, const Analysis& so_far) {
  // torch_tb_profiler's seven are among them: data-wait, communication, low-utilization,
  // tensor-cores, memory-high; its two of DataParallel have nothing to apply to.
  constexpr std::array rules{find_data_wait,       find_slow_reads,      find_slow_transform,
                             find_slow_worker,     find_slow_samples,    find_loader_contention,
                             find_copies,          find_pageable_copies, find_launch_bound,
                             find_sync_bound,      find_tiny_batch,      find_communication,
                             find_tensor_cores,    find_unaligned,       find_layout_transposes,
                             find_small_kernels,   find_slow_observers,  find_slow_checkpoints,
                             find_long_evaluation, find_oversubscribed,  find_full_memory,
                             find_throttling,      find_low_utilization, find_slow_layer,
                             find_many_calls,      find_other_programs,  find_cpu_quota,
                             find_narrow_affinity, find_short_memory};
  const Facts facts(view, so_far);
  std::vector<Finding> findings;
  if (facts.step_ns <= 0) return findings;
  for (const FindingRule rule : rules) rule(facts, findings);
  // Leave out findings whose gain is known to be small.
  constexpr double least_gain = 0.005;  // of a step
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.gain_ns > 0 && finding.gain_ns < least_gain * facts.step_ns;
  });
  for (Finding& finding : findings) {
    finding.gain_ns = std::clamp(finding.gain_ns, 0.0, facts.step_ns);
    finding.gain_least_ns = std::clamp(finding.gain_least_ns, 0.0, facts.step_ns);
    finding.gain_most_ns = std::clamp(finding.gain_most_ns, 0.0, facts.step_ns);
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.gain_ns > b.gain_ns; });
  return findings;
}

}  // namespace warpstep::profiler

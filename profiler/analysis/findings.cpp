#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "profiler/analysis/counted.h"
#include "profiler/analysis/findings_rules.h"
#include "profiler/analysis/stall_text.h"

namespace warpstep::profiler {
namespace advice {

Facts::Facts(const Session& session_, const Analysis& analysis_)
    : session(session_),
      analysis(analysis_),
      options(fields::child(session_.stamp, "options")),
      step_ns(analysis_.breakdown.step_ns),
      steps(static_cast<double>(std::max<std::size_t>(1, analysis_.breakdown.counted))),
      on_host(session_.computes_on_host()),
      waits_for_data(analysis_.stall.is_stalled) {}

std::string Facts::larger_batch() const {
  return batch() > 0 ? fmt::format("--batch {}", 2 * batch()) : "--batch";
}

std::string Facts::smaller_batch() const {
  return batch() > 1 ? fmt::format("--batch {}", batch() / 2) : "";
}

std::string Facts::of_step(double ns) const {
  return fmt::format("{} of {} a step ({})", time_text(ns), time_text(step_ns),
                     share_text(ns / step_ns));
}

double Facts::range_ns(std::string_view name) const {
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::range && session.name(span.name) == name &&
        in_windows(session, span.begin_ns))
      sum += static_cast<double>(span.end_ns - span.begin_ns);
  return sum / steps;
}

}  // namespace advice

std::vector<Finding> find_findings(const Session& session, const Analysis& so_far) {
  // torch_tb_profiler's seven are among them: data-wait, communication, low-utilization,
  // tensor-cores, memory-high; its two of DataParallel have nothing to apply to.
  constexpr std::array<advice::Rule, 22> rules{
      advice::find_data_wait,         advice::find_slow_disk,       advice::find_slow_transform,
      advice::find_loader_contention, advice::find_copies,          advice::find_pageable_copies,
      advice::find_launch_bound,      advice::find_sync_bound,      advice::find_tiny_batch,
      advice::find_communication,     advice::find_tensor_cores,    advice::find_unaligned,
      advice::find_layout_transposes, advice::find_small_kernels,   advice::find_slow_observers,
      advice::find_slow_checkpoints,  advice::find_long_evaluation, advice::find_oversubscribed,
      advice::find_full_memory,       advice::find_throttling,      advice::find_low_utilization,
      advice::find_slow_layer};
  const advice::Facts facts(session, so_far);
  std::vector<Finding> findings;
  if (facts.step_ns <= 0) return findings;
  for (const advice::Rule rule : rules) rule(facts, findings);
  // One whose gain is known to be small is not worth a reader's time.
  constexpr double least_gain = 0.005;  // of a step
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.gain_ns > 0 && finding.gain_ns < least_gain * facts.step_ns;
  });
  for (Finding& finding : findings)
    finding.gain_ns = std::clamp(finding.gain_ns, 0.0, facts.step_ns);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.gain_ns > b.gain_ns; });
  return findings;
}

}  // namespace warpstep::profiler

#include "profiler/analysis/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
Facts::Facts(const View& view, const Analysis& analysis)
    : view(view),
      session(view.session),
      analysis(analysis),
      options(view.options),
      step_ns(analysis.breakdown.step_ns),
      steps(static_cast<double>(std::max<std::size_t>(1, analysis.breakdown.counted))),
      on_host(view.session.computes_on_host()),
      waits_for_data(analysis.stall.is_stalled) {}

namespace {

std::int64_t ranks_of(const Session& session) {
  return std::max<std::int64_t>(1, fields::whole(session.stamp, "ranks", 1));
}

}  // namespace

// Of all ranks where the run says so: beside it --batch is refused. With accumulation half as many
// steps of twice the batch make the same update.
std::string Facts::larger_batch() const {
  const std::int64_t global = fields::whole(options, "global_batch"),
                     accumulate = fields::whole(options, "accumulate", 1);
  if (global <= 0 && batch() <= 0) return "--batch";
  std::string flag = global > 0 ? fmt::format("--global-batch {}", 2 * global)
                                : fmt::format("--batch {}", 2 * batch());
  if (accumulate > 1 && accumulate % 2 == 0)
    flag += fmt::format(" --accumulate {}", accumulate / 2);
  return flag;
}

std::string Facts::smaller_batch() const {
  if (batch() <= 1) return "";
  const std::int64_t global = fields::whole(options, "global_batch");
  if (global <= 0) return fmt::format("--batch {}", batch() / 2);
  // Ranks share it evenly.
  const std::int64_t ranks = ranks_of(session), half = global / 2 / ranks * ranks;
  return half > 0 ? fmt::format("--global-batch {}", half) : "";
}

bool Facts::has_room_for_larger_batch() const {
  constexpr double usable = 0.95;  // of the memory
  const Json& plan = fields::child(session.program, "memory");
  if (on_host) {
    const Memory memory = host_memory(*this);
    const double more = fields::number(plan, "arena_bytes");
    return !is_short_of_memory(analysis.contention) && !memory.is_full() &&
           (memory.total <= 0 || memory.used + more <= usable * memory.total);
  }
  const double then = fields::number(plan, "total_bytes") + fields::number(plan, "arena_bytes");
  return std::ranges::none_of(run_devices(session), [&](const Device* device) {
    return device->total_memory > 0 && then > usable * static_cast<double>(device->total_memory);
  });
}

bool Facts::has_samples_for_larger_batch() const {
  const auto samples = fields::whole(session.loader, "samples"),
             global = fields::whole(options, "global_batch");
  return samples <= 0 || 2 * (global > 0 ? global : batch() * ranks_of(session)) <= samples;
}

std::string Facts::of_step(double ns) const {
  return fmt::format("{} of {} per step ({})", quantity(ns, Unit::ns), quantity(step_ns, Unit::ns),
                     quantity(ns / step_ns, Unit::share));
}

namespace {

// Of ranges of this name that begin at a moment of `scope`, ns.
double sum_of_ranges(const View& view, std::string_view name,
                     bool (View::*scope)(std::uint64_t) const) {
  const Session& session = view.session;
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::range && session.name(span.name) == name &&
        (view.*scope)(span.begin_ns))
      sum += static_cast<double>(span.end_ns - span.begin_ns);
  return sum;
}

}  // namespace

double Facts::range_ns(std::string_view name) const {
  return sum_of_ranges(view, name, &View::in_steps) / steps;
}

double Facts::unless_waiting(double ns) const {
  if (!waits_for_data) return ns;
  const LoaderView& loader = analysis.loader;
  if (loader.work_ns <= 0) return 0;  // not recorded: the loader may be all that a step takes
  const double period_ns = loader.work_ns / std::max(1, loader.workers);
  return std::clamp(step_ns - period_ns, 0.0, std::max(0.0, ns));
}

std::string Facts::of_run(double ns) const {
  return fmt::format("{} of {} ({} of the run)", quantity(ns, Unit::ns),
                     quantity(run_ns(), Unit::ns), quantity(ns / run_ns(), Unit::share));
}

double Facts::run_steps() const {
  return std::max(1.0, analysis.run.steps > 0 ? analysis.run.steps : steps);
}

double Facts::run_ns() const {
  return analysis.run.wall_ns > 0 ? analysis.run.wall_ns : run_steps() * step_ns;
}

double Facts::outside_ns(std::string_view name) const {
  if (const RunPart* part = analysis.run.part(name); part != nullptr) return part->ns;
  // An older session: as in its windows.
  return sum_of_ranges(view, name, &View::in_windows) / steps * run_steps();
}

namespace {

// The class that all of the slowest samples are of; "" of few samples, or of several classes.
std::string class_of_all(const Json& slowest) {
  constexpr std::size_t enough = 5;
  if (!slowest.is_array() || slowest.size() < enough) return "";
  const std::string first = fields::text(slowest[0], "class");
  const auto is_first = [&](const Json& one) { return fields::text(one, "class") == first; };
  return std::ranges::all_of(slowest, is_first) ? first : "";
}

}  // namespace

std::string slowest_text(const Session& session) {
  std::string text;
  const Json& slowest = fields::child(session.loader, "slowest_samples");
  if (const std::string name = class_of_all(slowest); !name.empty())
    text = fmt::format("; the {} slowest are all of class {}", slowest.size(), name);
  for (std::size_t i = 0; slowest.is_array() && i < std::min<std::size_t>(3, slowest.size()); ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "; the slowest: " : ", ", fields::text(slowest[i], "name"),
                    quantity(fields::number(slowest[i], "ns"), Unit::ns));
  return text;
}

namespace {

// Findings whose gain is of waits for data.
constexpr std::array of_waits{"data-wait",     "slow-disk",         "low-bandwidth",
                              "slow-samples",  "slow-worker",       "slow-transform",
                              "waiting-stage", "set-not-in-memory", "io-limit"};

bool is_of_waits(const Finding& finding) {
  return std::ranges::find(of_waits, finding.key) != of_waits.end();
}

// Steps of the run that have what was found in its windows: as many as would make its waiting, as
// the first epoch may wait where later ones find the data in memory.
double alike_steps(const Facts& facts, const Finding& finding) {
  const double all = facts.run_steps();
  if (!is_of_waits(finding)) return all;
  const std::vector<Step>& steps = facts.session.steps;
  const std::vector<std::size_t>& counted = facts.view.counted;
  double wait = facts.analysis.stall.wait_ns;  // of a counted step
  // The breakdown's wait of a device is another than that of steps (loader_view()).
  if (!facts.on_host && facts.analysis.breakdown.from_spans && !counted.empty()) {
    wait = 0;
    for (const std::size_t i : counted)
      wait += static_cast<double>(steps[i].data_ns) / static_cast<double>(counted.size());
  }
  if (wait <= 0) return all;
  // Waiting for the first batch is start-up: no setting of the loader saves it.
  double waited = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) waited += static_cast<double>(steps[i].data_ns);
  return waited > 0 ? std::min(all, waited / wait) : all;
}

// What is within steps saves at most all of each; what is outside of them at most the run.
void settle_gains(const Facts& facts, Finding& finding) {
  if (finding.outside_steps) {
    finding.run_gain_ns = std::clamp(finding.run_gain_ns, 0.0, facts.run_ns());
    finding.gain_ns = finding.run_gain_ns / facts.run_steps();
    return;
  }
  // No loader makes a step shorter than its kernels.
  const double kernels_ns = is_of_waits(finding) ? facts.part(Category::kernel) : 0,
               most = std::max(0.0, facts.step_ns - kernels_ns);
  for (double* gain : {&finding.gain_ns, &finding.gain_least_ns, &finding.gain_most_ns})
    *gain = std::clamp(*gain, 0.0, most);
  if (finding.gain_least_ns >= finding.gain_most_ns)  // no range is left
    finding.gain_least_ns = finding.gain_most_ns = 0;
  const double between_ns = std::max(0.0, finding.run_gain_ns);
  finding.run_gain_ns =
      std::min(facts.run_ns(), finding.gain_ns * alike_steps(facts, finding) + between_ns);
}

// Rarer evaluations also save the checkpoints that follow them, and long-evaluation counts these:
// the same option is not promised twice.
void merge_checkpoints(std::vector<Finding>& findings) {
  const auto evaluation = std::ranges::find(findings, "long-evaluation", &Finding::key);
  const auto checkpoints = std::ranges::find(findings, "slow-checkpoints", &Finding::key);
  if (evaluation == findings.end() || checkpoints == findings.end()) return;
  if (evaluation->flag.empty() || evaluation->flag != checkpoints->flag) return;
  evaluation->evidence += "; checkpoints after them: " + checkpoints->evidence;
  findings.erase(checkpoints);
}

}  // namespace

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
                             find_many_calls,      find_few_blocks,      find_other_programs,
                             find_stolen_cores,    find_cpu_quota,       find_narrow_affinity,
                             find_bound_threads,   find_short_memory,    find_memory_growth,
                             find_idle_cores,      find_uneven_run,      find_pauses,
                             find_outside_waits,   find_statistics,      find_slow_options,
                             find_slow_opening,    find_stopped,         find_slow_blocks,
                             find_waiting_stage,   find_slow_rank,       find_tracer,
                             find_slow_clock,      find_foreign_threads, find_set_not_in_memory,
                             find_io_limit};
  const Facts facts(view, so_far);
  std::vector<Finding> findings;
  if (facts.step_ns <= 0) return findings;
  for (FindingRule* const rule : rules) rule(facts, findings);
  merge_checkpoints(findings);
  for (Finding& finding : findings) {
    if (finding.flag != facts.larger_batch()) continue;
    if (!facts.has_room_for_larger_batch())
      finding.advice += fmt::format(
          "; but twice the batch does not fit into this {}'s memory (--recompute frees some)",
          facts.on_host ? "machine" : "GPU");
    else if (!facts.has_samples_for_larger_batch())
      finding.advice += "; but the set has too few samples for twice the batch";
    else
      continue;
    finding.flag.clear();
  }
  for (Finding& finding : findings) {
    if (finding.advice.find(finding.flag) == std::string::npos)
      finding.advice += fmt::format(" ({})", finding.flag);
    settle_gains(facts, finding);
  }
  // Leave out findings whose gain is known to be small.
  constexpr double least_gain = 0.005;  // of a step, or of the run
  std::erase_if(findings, [&](const Finding& finding) {
    if (finding.run_gain_ns >= least_gain * facts.run_ns()) return false;
    const double all = finding.outside_steps ? facts.run_ns() : facts.step_ns;
    const double gain = finding.outside_steps ? finding.run_gain_ns
                                              : std::max(finding.gain_ns, finding.gain_most_ns);
    return gain > 0 && gain < least_gain * all;
  });
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tuple(a.ends_run, a.spoils_figures, b.changes_results, a.run_gain_ns) >
           std::tuple(b.ends_run, b.spoils_figures, a.changes_results, b.run_gain_ns);
  });
  return findings;
}

}  // namespace warpstep::profiler

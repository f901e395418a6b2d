// Findings about the run outside of its steps: checkpoints and evaluations. Their gains are of the
// run's wall time.
#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/findings.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double least_checkpoints = 0.1;  // of the run
constexpr double least_evaluation = 0.25;  // of the run
constexpr std::int64_t rarer = 4;          // as often as the advice says: a quarter
constexpr double faster_disk = 0.5;        // of the time on a disk, on one twice as fast

// The share of a phase's repetitions that are left when those every `every` steps become `rarer`
// times as rare. Those at the ends of epochs and of the run stay.
double share_left(const Facts& facts, std::string_view name, std::int64_t every) {
  const Session& session = facts.session;
  const std::int64_t epoch = fields::whole(session.loader, "steps_per_epoch");
  const std::int64_t last =
      session.steps.empty() ? 0 : static_cast<std::int64_t>(session.steps.back().step);
  double all = 0, left = 0;
  for (const Phase& phase : session.phases) {
    if (phase.depth != 0 || session.name(phase.name) != name) continue;
    const auto step = static_cast<std::int64_t>(phase.arg);
    const bool stays =
        step == last || (epoch > 0 && step % epoch == 0) || step % (rarer * every) == 0;
    ++all;
    left += stays ? 1 : 0;
  }
  return all > 0 ? left / all : 1.0 / rarer;
}

std::string evidence_of(const Facts& facts, std::string_view name, double ns) {
  std::string text = facts.of_run(ns);
  const RunPart* const part = facts.analysis.run.part(name);
  if (part == nullptr) return text;
  text += fmt::format(", {} each", quantity(ns / static_cast<double>(part->count), Unit::ns));
  const std::string parts = parts_text(*part);
  return parts.empty() ? text : fmt::format("{}: {}", text, parts);
}

double part_ns(const Facts& facts, std::string_view name, std::string_view within) {
  const RunPart* const part = facts.analysis.run.part(name);
  if (part == nullptr) return 0;
  for (const RunPart& one : part->parts)
    if (one.name == within) return one.ns;
  return 0;
}

}  // namespace

void find_slow_checkpoints(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.outside_ns("checkpoint");
  if (ns <= least_checkpoints * facts.run_ns()) return;
  Finding finding{.key = "slow-checkpoints",
                  .text = "Writing checkpoints is a significant part of the run.",
                  .evidence = evidence_of(facts, "checkpoint", ns),
                  .outside_steps = true};
  const std::int64_t every = fields::whole(facts.options, "checkpoint_every");
  if (every > 0) {
    finding.flag = fmt::format("--checkpoint-every {}", rarer * every);
    finding.advice = fmt::format("write checkpoints less often: {}", finding.flag);
    finding.run_gain_ns = ns * (1 - share_left(facts, "checkpoint", every));
  } else {
    const double disk =
        part_ns(facts, "checkpoint", "write") + part_ns(facts, "checkpoint", "fsync");
    finding.run_gain_ns = disk * (1 - faster_disk);
    finding.advice =
        "write checkpoints to a faster disk (--out): one twice as fast halves writing and fsync; "
        "one checkpoint per epoch is always written";
  }
  findings.push_back(finding);
}

void find_long_evaluation(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.outside_ns("evaluation");
  if (ns <= least_evaluation * facts.run_ns()) return;
  Finding finding{.key = "long-evaluation",
                  .text = "Evaluation takes much of the run.",
                  .evidence = evidence_of(facts, "evaluation", ns),
                  .run_gain_ns = ns / 2,
                  .outside_steps = true};
  const std::int64_t every = fields::whole(facts.options, "eval_every");
  if (every > 0) {
    finding.flag = fmt::format("--eval-every {}", rarer * every);
    finding.advice = fmt::format("evaluate less often: {}", finding.flag);
    finding.run_gain_ns = ns * (1 - share_left(facts, "evaluation", every));
  } else {
    finding.advice = "use a smaller test split: half of it saves half of this";
  }
  findings.push_back(finding);
}

}  // namespace warpstep::profiler

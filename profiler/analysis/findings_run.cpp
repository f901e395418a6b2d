// Findings about the run outside of its steps: checkpoints and evaluations. Their gains are of the
// run's wall time.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "profiler/analysis/findings.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double least_checkpoints = 0.1;  // of the run
constexpr double least_evaluation = 0.25;  // of the run
constexpr std::int64_t rarer = 4;          // as often as the advice says: a quarter
constexpr double faster_disk = 0.5;        // of the time on a disk, on one twice as fast

// Which of the steps after which something was done are left when that comes `rarer` times as
// rarely as every `every` steps: those at the ends of epochs and of the run stay.
class Rarer {
 public:
  Rarer(const Facts& facts, std::int64_t every)
      : every_(rarer * every),
        epoch_(fields::whole(facts.session.loader, "steps_per_epoch")),
        last_(facts.session.steps.empty()
                  ? 0
                  : static_cast<std::int64_t>(facts.session.steps.back().step)) {}
  bool has(std::int64_t step) const {
    return step == last_ || (epoch_ > 0 && step % epoch_ == 0) || step % every_ == 0;
  }

 private:
  std::int64_t every_, epoch_, last_;
};

// Calls visit(step, phase) for the phases of this name that are no parts of others.
template <class Visit>
void for_each_phase(const Session& session, std::string_view name, Visit visit) {
  for (const Phase& phase : session.phases)
    if (phase.depth == 0 && session.name(phase.name) == name)
      visit(static_cast<std::int64_t>(phase.arg), phase);
}

double share_left(const Facts& facts, std::string_view name, std::int64_t every) {
  const Rarer after(facts, every);
  double all = 0, left = 0;
  for_each_phase(facts.session, name, [&](std::int64_t step, const Phase&) {
    ++all;
    left += after.has(step) ? 1 : 0;
  });
  return all > 0 ? left / all : 1.0 / rarer;
}

// What rarer evaluations save of checkpoints: each evaluation is followed by one, which may be the
// best so far.
double checkpoints_of_evaluations_ns(const Facts& facts, std::int64_t every) {
  const Rarer after(facts, every);
  const std::int64_t due = fields::whole(facts.options, "checkpoint_every");
  std::set<std::int64_t> dropped;
  for_each_phase(facts.session, "evaluation", [&](std::int64_t step, const Phase&) {
    if (!after.has(step) && (due <= 0 || step % due != 0)) dropped.insert(step);
  });
  double ns = 0;
  for_each_phase(facts.session, "checkpoint", [&](std::int64_t step, const Phase& phase) {
    if (dropped.contains(step)) ns += static_cast<double>(phase.end_ns - phase.begin_ns);
  });
  return ns;
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
    finding.run_gain_ns = ns * (1 - share_left(facts, "evaluation", every)) +
                          checkpoints_of_evaluations_ns(facts, every);
  } else {
    finding.advice = "use a smaller test split: half of it saves half of this";
  }
  findings.push_back(finding);
}

}  // namespace warpstep::profiler

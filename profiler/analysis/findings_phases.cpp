// Findings about what a run does outside of its steps: start-up, checkpoints, evaluations. Their
// gains are of the run's wall time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/findings.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double least_checkpoints = 0.1;   // of the run
constexpr double least_evaluation = 0.25;   // of the run
constexpr std::uint64_t least_samples = 3;  // of what was done between steps, or a long run
constexpr double long_run_ns = 60e9;
constexpr std::int64_t rarer = 4;    // as often as the advice says: a quarter
constexpr double faster_disk = 0.5;  // of the time on a disk, on one twice as fast

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

std::set<std::int64_t> steps_of_phases(const Session& session, std::string_view name) {
  std::set<std::int64_t> steps;
  for_each_phase(session, name, [&](std::int64_t step, const Phase&) { steps.insert(step); });
  return steps;
}

// `kept`: steps that it comes after for another reason.
double share_left(const Facts& facts, std::string_view name, std::int64_t every,
                  const std::set<std::int64_t>& kept = {}) {
  const Rarer after(facts, every);
  double all = 0, left = 0;
  for_each_phase(facts.session, name, [&](std::int64_t step, const Phase&) {
    ++all;
    left += after.has(step) || kept.contains(step) ? 1 : 0;
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

// The checkpoints of steps at which neither one nor an evaluation is due if both become rarer.
double checkpoints_of_both_ns(const Facts& facts, std::int64_t every, std::int64_t eval_every) {
  const Rarer after(facts, every), after_evaluations(facts, eval_every);
  double ns = 0;
  for_each_phase(facts.session, "checkpoint", [&](std::int64_t step, const Phase& phase) {
    if (!after.has(step) && !after_evaluations.has(step))
      ns += static_cast<double>(phase.end_ns - phase.begin_ns);
  });
  return ns;
}

std::string evidence_of(const Facts& facts, std::string_view name, double ns) {
  std::string text = facts.of_run(ns);
  const RunPart* const part = facts.analysis.run.part(name);
  if (part == nullptr) return text;
  text += fmt::format(", {} each", quantity(ns / static_cast<double>(part->count), Unit::ns));
  const std::string parts = parts_text(*part, part->count);
  return parts.empty() ? text : fmt::format("{}: {}", text, parts);
}

// Whether it was done several times, each time at the end of a whole epoch.
bool is_of_whole_epochs(const Facts& facts, std::string_view name) {
  const std::int64_t epoch = fields::whole(facts.session.loader, "steps_per_epoch");
  if (epoch < 1) return false;
  int count = 0;
  bool all = true;
  for_each_phase(facts.session, name, [&](std::int64_t step, const Phase&) {
    ++count;
    all = all && step > 0 && step % epoch == 0;
  });
  return all && count >= 2;
}

// Whether its share of the run says something about longer runs. One that --steps ends after some
// steps has its last checkpoint and its evaluation too; but a run of whole epochs continues alike,
// and what takes most of a run matters in any.
bool has_samples(const Facts& facts, std::string_view name) {
  constexpr double most_of_run = 0.5;
  const RunPart* const part = facts.analysis.run.part(name);
  if (part == nullptr || part->count >= least_samples || facts.run_ns() >= long_run_ns) return true;
  return part->ns > most_of_run * facts.run_ns() || is_of_whole_epochs(facts, name);
}

double part_ns(const Facts& facts, std::string_view name, std::string_view within) {
  const RunPart* const part = facts.analysis.run.part(name);
  if (part == nullptr) return 0;
  for (const RunPart& one : part->parts)
    if (one.name == within) return one.ns;
  return 0;
}

// What deleting old checkpoints takes, where no other part of a checkpoint takes longer; else 0.
double longest_removal_ns(const Facts& facts) {
  const RunPart* const part = facts.analysis.run.part("checkpoint");
  if (part == nullptr || part->parts.empty()) return 0;
  const RunPart& longest = *std::ranges::max_element(part->parts, {}, &RunPart::ns);
  return longest.name == "remove" ? longest.ns : 0;
}

void advise_on_removal(const Facts& facts, double ns, Finding& finding) {
  finding.advice = "deleting old checkpoints takes the largest part: ";
  if (fields::whole(facts.options, "keep_checkpoints", 2) > 0) {
    finding.flag = "--keep-checkpoints 0";
    finding.advice +=
        fmt::format("{} keeps all of them; or write them to another disk (--out)", finding.flag);
    finding.run_gain_ns = ns;
  } else {
    finding.advice += "write them to another disk (--out)";
    finding.run_gain_ns = ns * (1 - faster_disk);
  }
}

// One per epoch is always written. A disk helps unless reading the weights is what takes the time.
void advise_on_checkpoints_of_epochs(const Facts& facts, double ns, Finding& finding) {
  double disk = 0;
  for (const char* const part : {"write", "fsync", "rename"})
    disk += part_ns(facts, "checkpoint", part);
  if (2 * part_ns(facts, "checkpoint", "gather") > ns) {
    finding.advice = fmt::format(
        "a faster disk saves little: most of it is reading the weights and moments{} and computing "
        "their checksums; one checkpoint per epoch is always written, so longer epochs have fewer",
        facts.on_host ? "" : " from the device");
    return;
  }
  finding.run_gain_ns = disk * (1 - faster_disk);
  finding.advice =
      "write checkpoints to a faster disk (--out): one twice as fast halves writing and fsync; "
      "one checkpoint per epoch is always written";
}

}  // namespace

void find_slow_checkpoints(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.outside_ns("checkpoint");
  if (ns <= least_checkpoints * facts.run_ns() || !has_samples(facts, "checkpoint")) return;
  Finding finding{
      .key = "slow-checkpoints",
      .text = "Writing checkpoints is a significant part of the run.",
      .evidence = evidence_of(facts, "checkpoint", ns) + write_limits_text(facts.session),
      .outside_steps = true};
  const std::int64_t every = fields::whole(facts.options, "checkpoint_every"),
                     eval_every = fields::whole(facts.options, "eval_every");
  const double saved = every > 0
                           ? ns * (1 - share_left(facts, "checkpoint", every,
                                                  steps_of_phases(facts.session, "evaluation")))
                           : 0;
  const double with_evaluations =
      eval_every > 0 ? checkpoints_of_evaluations_ns(facts, eval_every) : 0;
  const double together =
      every > 0 && eval_every > 0 ? checkpoints_of_both_ns(facts, every, eval_every) : 0;
  const double removal = longest_removal_ns(facts);
  if (removal > std::max({saved, with_evaluations, together})) {
    advise_on_removal(facts, removal, finding);
  } else if (together > 0 && saved <= 0 && with_evaluations <= 0) {
    finding.flag =
        fmt::format("--checkpoint-every {} --eval-every {}", rarer * every, rarer * eval_every);
    finding.advice = fmt::format("write checkpoints and evaluate less often: {}", finding.flag);
    finding.run_gain_ns = together;
  } else if (saved > 0 && saved >= with_evaluations) {
    finding.flag = fmt::format("--checkpoint-every {}", rarer * every);
    finding.advice = fmt::format("write checkpoints less often: {}", finding.flag);
    finding.run_gain_ns = saved;
  } else if (with_evaluations > 0) {
    finding.flag = fmt::format("--eval-every {}", rarer * eval_every);
    finding.advice =
        fmt::format("evaluate less often: {}; a checkpoint follows each evaluation", finding.flag);
    finding.run_gain_ns = with_evaluations;
  } else {
    advise_on_checkpoints_of_epochs(facts, ns, finding);
  }
  findings.push_back(finding);
}

namespace {

// What shortens evaluations that wait for the loader for most of their time; "": they do not.
std::string shorter_waits(const Facts& facts, double ns) {
  if (2 * part_ns(facts, "evaluation", "loader wait") <= ns) return "";
  const LoaderView& loader = facts.analysis.loader;
  const int workers = std::max(1, loader.workers), most = most_workers(loader, facts.on_host);
  std::vector<std::string> ways;
  if (workers < most && !loader.source.is_saturated())
    ways.push_back(fmt::format("--workers {}", std::min(2 * workers, most)));
  const std::string tier = fields::text(facts.session.loader, "tier", facts.option("tier"));
  const std::optional<std::string> command = pack_command(facts);
  if (command && tier != "mapped" && tier != "resident")
    ways.push_back(fmt::format("`{}`", *command));
  if (can_keep_decoded(facts)) ways.emplace_back("--tier mapped, which keeps decoded images");
  if (ways.empty())
    ways.emplace_back(2 * loader.blocked_ns > loader.work_ns ? "a faster disk for the data"
                                                             : "a machine with more cores");
  std::string text = "evaluation waits for the loader: use " + ways[0];
  for (std::size_t i = 1; i < ways.size(); ++i)
    text += (i + 1 < ways.size() ? ", " : " or ") + ways[i];
  return text;
}

}  // namespace

void find_long_evaluation(const Facts& facts, std::vector<Finding>& findings) {
  const double ns = facts.outside_ns("evaluation");
  if (ns <= least_evaluation * facts.run_ns() || !has_samples(facts, "evaluation")) return;
  Finding finding{.key = "long-evaluation",
                  .text = "Evaluation takes much of the run.",
                  .evidence = evidence_of(facts, "evaluation", ns),
                  .run_gain_ns = ns / 2,
                  .outside_steps = true};
  const std::int64_t every = fields::whole(facts.options, "eval_every");
  const double saved = every > 0 ? ns * (1 - share_left(facts, "evaluation", every)) : 0;
  const std::string waits = shorter_waits(facts, ns);
  if (saved > 0) {
    finding.flag = fmt::format("--eval-every {}", rarer * every);
    finding.advice =
        fmt::format("evaluate less often: {}{}{}", finding.flag, waits.empty() ? "" : "; ", waits);
    finding.run_gain_ns = saved + checkpoints_of_evaluations_ns(facts, every);
  } else {
    const bool has_share = fields::number(facts.options, "val_split") > 0;
    finding.advice = fmt::format(
        "{}{}use a smaller {}: half the size saves half of this time; or --limit-batches N, "
        "which ends each evaluation, and also each epoch, after N batches",
        waits, waits.empty() ? "" : "; or ",
        has_share ? "share of the data (--val-split)" : "test split");
  }
  findings.push_back(finding);
}

namespace {

// What comes once, before the first step. `saved`: by its remedy all of it is.
struct Once {
  const char *phase, *key, *text, *advice;
  bool saved = false;
};

constexpr std::array once_a_run{
    Once{"data indexing", "slow-indexing", "Listing the data takes much of the run.",
         "pack the set once (warpstep data pack): a packed set is opened without reading its "
         "folders and headers",
         true},
    Once{"statistics", "slow-measuring", "Measuring mean and deviation takes much of the run.",
         "give --mean and --std, as the run's config.json has them", true},
    Once{"start", "slow-start-up", "Starting the program takes much of the run.",
         "look at the disk that the program and its libraries are on, and in a job at how long its "
         "ranks wait for each other's start"},
    Once{"device", "slow-start-up", "Opening the device takes much of the run.",
         "on a GPU keep the driver loaded between runs (nvidia-persistenced), and show the process "
         "only the GPUs that it uses (CUDA_VISIBLE_DEVICES)"},
    Once{"program", "slow-start-up", "Preparing the step takes much of the run.",
         "keep what is measured and compiled between runs: a --plan-cache on a disk that stays; "
         "--autotune pays in longer runs"},
    Once{"set-up", "slow-start-up", "Reading weights and opening files takes much of the run.",
         "look at the disk that --out and the weights are on"},
    Once{"first batch", "slow-start-up", "Waiting for the first batch takes much of the run.",
         "its samples are read and decoded while nothing else runs: a faster disk, a packed set or "
         "more --workers make it shorter"},
};

}  // namespace

void find_slow_opening(const Facts& facts, std::vector<Finding>& findings) {
  constexpr double least_of_run = 0.25, least_ns = 1e9;  // less is not worth a remedy
  for (const Once& once : once_a_run) {
    const RunPart* const part = facts.analysis.run.part(once.phase);
    if (part == nullptr || part->ns < least_of_run * facts.run_ns() || part->ns < least_ns)
      continue;
    Finding finding{.key = once.key,
                    .text = once.text,
                    .evidence = facts.of_run(part->ns),
                    .advice = once.advice,
                    .run_gain_ns = once.saved ? part->ns : 0,
                    .outside_steps = true};
    if (const std::string parts = parts_text(*part); !parts.empty())
      finding.evidence += ": " + parts;
    if (!once.saved) finding.advice += "; a longer run pays this once";
    const bool is_packed = !fields::text(facts.session.loader, "encoding").empty() &&
                           !is_loose(facts.view);  // or a few large files
    if (is_packed && finding.key == "slow-indexing") {
      finding.advice = "copy the set to a faster disk: its index is read at each start";
      finding.run_gain_ns = 0;
    }
    findings.push_back(finding);
  }
}

}  // namespace warpstep::profiler
// Findings about steps that take longer at one time than at another. Their gains are of the run's
// wall time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/contention.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t warm_up = 5;        // steps
constexpr std::size_t least_uneven = 60;  // steps: fewer do not show that they changed
constexpr std::size_t most_blocks = 40;
constexpr double least_change = 0.15;  // of the faster steps
constexpr double least_of_run = 0.02;
constexpr double long_step = 3;  // times the median
constexpr double seldom = 0.1;   // of the steps

using StepPart = std::uint64_t Step::*;

struct NamedPart {
  const char* name;
  StepPart ns;
};
constexpr std::array step_parts{
    NamedPart{"waits for data", &Step::data_ns}, NamedPart{"copies", &Step::copies_ns},
    NamedPart{"kernels", &Step::kernels_ns}, NamedPart{"the trainer's own work", &Step::cpu_ns},
    NamedPart{"the rest", &Step::other_ns}};

double length_of(const Step& step) {
  return static_cast<double>(step.end_ns - step.begin_ns);
}

// Means of equal blocks of steps, in order.
template <class Value>
std::vector<double> block_means(std::span<const Step> steps, Value value) {
  const std::size_t blocks = std::min(most_blocks, steps.size() / warm_up);
  std::vector<double> means;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t from = b * steps.size() / blocks, to = (b + 1) * steps.size() / blocks;
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += value(steps[i]);
    means.push_back(sum / static_cast<double>(to - from));
  }
  return means;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// Where the blocks' level changes, by least squares: that many blocks are before the change; 0: it
// does not, as the slower blocks of one side overlap with those of the other. A block with a pause
// counts as three times the median at most.
std::size_t change_of(std::vector<double> blocks) {
  const std::size_t least = std::max<std::size_t>(2, blocks.size() / 10);
  const double usual = median(blocks);
  double all = 0;
  for (double& block : blocks) all += block = std::min(block, long_step * usual);
  std::size_t best = 0;
  double most = 0, sum = 0;
  for (std::size_t at = 1; at + least <= blocks.size(); ++at) {
    sum += blocks[at - 1];
    if (at < least) continue;
    const auto n = static_cast<double>(at), m = static_cast<double>(blocks.size() - at);
    const double apart = sum / n - (all - sum) / m;
    if (const double squares = apart * apart * n * m / (n + m); squares > most) {
      most = squares;
      best = at;
    }
  }
  if (best == 0) return 0;
  const auto middle = blocks.begin() + static_cast<std::ptrdiff_t>(best);
  std::vector<double> fast(blocks.begin(), middle), slow(middle, blocks.end());
  if (median(fast) > median(slow)) std::swap(fast, slow);
  return quantile(slow, 0.25) > (1 + least_change) * quantile(fast, 0.75) ? best : 0;
}

double mean_of(std::span<const Step> steps, StepPart part) {
  double sum = 0;
  for (const Step& step : steps) sum += static_cast<double>(step.*part);
  return sum / static_cast<double>(steps.size());
}

// Of the cores that the run may use, of 1.
double others_during(const Facts& facts, std::span<const Step> steps) {
  std::vector<Interval> times;
  for (const Step& step : steps) times.push_back({step.begin_ns, step.end_ns});
  const auto use = core_use(facts.session, merged(std::move(times)));
  return use ? use->others() / use->cores : 0;
}

std::string steps_text(std::span<const Step> steps, double ns) {
  return fmt::format("steps {}-{} took {}", steps.front().step, steps.back().step,
                     quantity(ns, Unit::ns));
}

// How much longer the last blocks are than the first, where they grew steadily: by least squares, a
// share of the first; 0 where the line does not explain most of how the blocks differ.
double steady_growth(std::vector<double> blocks) {
  constexpr std::size_t least_blocks = 12;
  constexpr double least_explained = 0.8;  // of the variance; a line explains 0.75 of one jump
  if (blocks.size() < least_blocks) return 0;
  const double usual = median(blocks), n = static_cast<double>(blocks.size());
  double mean = 0;
  for (double& block : blocks) mean += (block = std::min(block, long_step * usual)) / n;
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const double x = static_cast<double>(i) - (n - 1) / 2, y = blocks[i] - mean;
    xx += x * x, xy += x * y, yy += y * y;
  }
  const double rise = xy / xx * (n - 1), first = mean - rise / 2;
  return rise > 0 && first > 0 && xy * xy >= least_explained * xx * yy ? rise / first : 0;
}

double mean_length(std::span<const Step> steps) {
  double sum = 0;
  for (const Step& step : steps) sum += length_of(step);
  return sum / static_cast<double>(steps.size());
}

// Two parts of a run whose steps differ, and what the slower ones cost more in all.
struct Uneven {
  std::span<const Step> early, late;
  double early_ns = 0, late_ns = 0;  // means
  double lost_ns = 0;
  bool is_steady = false;  // it grew from step to step: the parts are the first and last quarter

  bool is_start() const { return early_ns > late_ns; }
  std::span<const Step> slow() const { return is_start() ? early : late; }
  std::span<const Step> fast() const { return is_start() ? late : early; }
  double grew_ns(const NamedPart& part) const {
    return mean_of(slow(), part.ns) - mean_of(fast(), part.ns);
  }
  NamedPart most() const {  // the part that grew most
    return *std::ranges::max_element(step_parts, {},
                                     [this](const NamedPart& part) { return grew_ns(part); });
  }
};

std::optional<Uneven> uneven_parts(std::span<const Step> steps) {
  const std::vector<double> blocks = block_means(steps, length_of);
  Uneven found;
  found.is_steady = steady_growth(blocks) >= least_change;
  const std::size_t at = found.is_steady ? 0 : change_of(blocks) * steps.size() / blocks.size();
  if (found.is_steady)
    found.early = steps.first(steps.size() / 4), found.late = steps.last(steps.size() / 4);
  else if (at > 0)
    found.early = steps.first(at), found.late = steps.subspan(at);
  else
    return std::nullopt;
  found.early_ns = mean_length(found.early), found.late_ns = mean_length(found.late);
  const auto slower = static_cast<double>(
      found.is_steady ? steps.size()
                      : (found.early_ns > found.late_ns ? found.early : found.late).size());
  // Of what a line rises the mean step has half.
  found.lost_ns = std::abs(found.early_ns - found.late_ns) * slower * (found.is_steady ? 0.5 : 1.0);
  return found;
}

std::optional<Uneven> uneven_run(const Facts& facts) {
  const std::span all(facts.session.steps);
  if (all.size() < least_uneven + warm_up) return std::nullopt;
  auto uneven = uneven_parts(all.subspan(warm_up));
  if (uneven && uneven->lost_ns < least_of_run * facts.run_ns()) uneven.reset();
  return uneven;
}

}  // namespace

void find_uneven_run(const Facts& facts, std::vector<Finding>& findings) {
  const auto uneven = uneven_run(facts);
  if (!uneven) return;
  const bool is_start = uneven->is_start();
  const std::span<const Step> slow = uneven->slow(), fast = uneven->fast();
  const NamedPart most = uneven->most();
  const double grew_ns = uneven->grew_ns(most);
  Finding finding{.key = is_start ? "slow-start" : "slower-later",
                  .evidence = fmt::format("{}, {}{}; of that {} {}",
                                          steps_text(uneven->early, uneven->early_ns),
                                          steps_text(uneven->late, uneven->late_ns),
                                          uneven->is_steady ? ", rising steadily between them" : "",
                                          most.name, quantity(grew_ns, Unit::ns)),
                  .run_gain_ns = uneven->lost_ns,
                  .outside_steps = true};
  const bool waits = most.ns == &Step::data_ns;
  if (is_start && !waits && fast.size() < slow.size() / 2) return;
  const double others = others_during(facts, slow) - others_during(facts, fast);
  if (const std::string more = quantity(others, Unit::share); others >= 0.1)
    finding.evidence += fmt::format("; other programs took {} more of the CPU then", more);
  if (is_start) {
    const std::size_t first = warm_up + slow.size();
    finding.text = fmt::format("The first {} steps were slower than the later ones.", first);
    finding.advice =
        waits ? fmt::format(
                    "the first epoch reads and decodes what memory holds later: {}copy it "
                    "to a faster disk; a longer run pays this once",
                    fields::flag(facts.session.loader, "can_pack", true) ? "pack the set, or " : "")
        : others >= 0.1 ? "other programs took the cores until then: start runs when they are done"
                        : "a longer run pays this once; compare runs by their later steps";
    if (!waits && others < 0.1) finding.run_gain_ns = 0;  // nothing saves it
  } else {
    finding.text =
        uneven->is_steady ? "Steps become steadily slower." : "Steps became slower during the run.";
    finding.advice =
        waits           ? "look at what else reads from the data's disk or link since then"
        : others >= 0.1 ? "stop the programs that began then; steps do the same work as before"
        : 2 * facts.part(Category::core_wait) >= grew_ns
            ? "the kernels' threads wait for a core: look for what took theirs since then"
        : facts.on_host && most.ns == &Step::kernels_ns &&
                facts.analysis.contention.is_much(others_during(facts, slow))
            ? "other programs took cores all the time, which makes steps uneven: run where cores "
              "are free before you look for other reasons"
        : uneven->is_steady
            ? "steps do the same work as before: look for what grows (an op, an observer or a "
              "transform of your own that keeps what it saw), and at clocks and temperature"
            : "steps do the same work as before: look at clocks, temperature, power and other "
              "users";
  }
  findings.push_back(finding);
}

namespace {

// The steps of which each comes as many after the one before: how many; 0 if they are irregular.
std::uint64_t period_of(std::span<const std::uint64_t> steps) {
  if (steps.size() < 3) return 0;
  const std::uint64_t period = steps[1] - steps[0];
  for (std::size_t i = 2; i < steps.size(); ++i)
    if (steps[i] - steps[i - 1] != period) return 0;
  return period;
}

struct UsualStep {
  double ns = 0, wait_ns = 0, cpu_ns = 0;  // medians
};

template <class Counts>
UsualStep usual_of(std::span<const Step> steps, Counts counts) {
  std::vector<double> lengths, waits, works;
  for (const Step& step : steps) {
    if (!counts(step)) continue;
    lengths.push_back(length_of(step));
    waits.push_back(static_cast<double>(step.data_ns));
    works.push_back(static_cast<double>(step.cpu_ns));
  }
  return {median(lengths), median(waits), median(works)};
}

// How much of what these steps took longer than usual they waited for a core, beyond what a usual
// step waits; of 1. Empty where none of them was recorded: a wait that all steps have is no reason
// for a slow one.
std::optional<double> extra_core_wait(const View& view, std::span<const Step> slow) {
  const std::vector<std::uint64_t> waits = core_waits(view);
  if (waits.empty()) return std::nullopt;
  const std::vector<Interval>& times = view.recorded.times();
  std::vector<double> lengths;
  for (const Interval& time : times)
    lengths.push_back(static_cast<double>(time.end_ns - time.begin_ns));
  const double usual_ns = median(lengths), usual_wait = median({waits.begin(), waits.end()});
  double more = 0, waited = 0;
  for (const Step& step : slow) {
    const int i = view.recorded.at(step.begin_ns);
    if (i < 0) continue;
    const auto at = static_cast<std::size_t>(i);
    more += lengths[at] - usual_ns;
    waited += static_cast<double>(waits[at]) - usual_wait;
  }
  if (more <= 0) return std::nullopt;
  return waited / more;
}

}  // namespace

// Steps that take several times the median, though the program neither waited for data nor for a
// core: all of it stood still, unless they come at regular intervals. With --accumulate, steps that
// end an update are compared with each other.
void find_pauses(const Facts& facts, std::vector<Finding>& findings) {
  const std::vector<Step>& all = facts.session.steps;
  if (all.size() < least_uneven + warm_up) return;
  const std::span<const Step> steps = std::span(all).subspan(warm_up);
  const std::size_t update = steps_per_update(facts.session);
  const auto updates = [update](const Step& step) { return update > 1 && step.step % update == 0; };
  const std::array<UsualStep, 2> usual{
      usual_of(steps, [&](const Step& step) { return !updates(step); }), usual_of(steps, updates)};
  double lost = 0, longest = 0, usual_ns = 0, own_work = 0;
  std::vector<std::uint64_t> slow;
  std::vector<Step> slow_steps, others;
  for (const Step& step : steps) {
    const UsualStep& like = usual[updates(step) ? 1 : 0];
    usual_ns += like.ns;
    const double length = length_of(step), more = length - like.ns;
    if (length < long_step * like.ns ||
        static_cast<double>(step.data_ns) - like.wait_ns > more / 2) {
      others.push_back(step);
      continue;
    }
    lost += more;
    longest = std::max(longest, length);
    own_work += static_cast<double>(step.cpu_ns) - like.cpu_ns;
    slow.push_back(step.step);
    slow_steps.push_back(step);
  }
  if (slow.size() < 3 ||
      static_cast<double>(slow.size()) > seldom * static_cast<double>(steps.size()))
    return;
  if (lost < least_of_run * facts.run_ns()) return;
  const double for_core = extra_core_wait(facts.view, slow_steps)
                              .value_or(facts.share(Category::core_wait) * usual_ns / lost);
  if (for_core > 0.5) return;
  Finding finding{
      .key = "pauses",
      .text = "The whole program stood still now and then.",
      .evidence = fmt::format("{} of {} steps took {:.0f} times the median or longer, at most {}; "
                              "they did not wait for data",
                              slow.size(), steps.size(), long_step, quantity(longest, Unit::ns)),
      .advice =
          "look for what stops it: a debugger or job manager (SIGSTOP), a snapshot or "
          "migration of the virtual machine, a frozen control group",
      .run_gain_ns = lost,
      .outside_steps = true};
  const double taken = others_during(facts, slow_steps) - others_during(facts, others);
  if (own_work > lost / 2) {
    finding.text =
        "The trainer's own work took long now and then: logging, or waiting for the reader of its "
        "output.";
    finding.evidence += fmt::format("; {} of that was the trainer's own work",
                                    quantity(own_work / lost, Unit::share));
    finding.advice =
        "send standard error to a file (2> train.log), put --out and TensorBoard's files on a "
        "faster disk, or log less often (--log-every)";
  } else if (taken >= 0.1) {
    finding.text = "Steps took several times as long while other programs ran.";
    finding.evidence +=
        fmt::format("; other programs took {} more of the CPU then", quantity(taken, Unit::share));
    finding.advice = "stop the programs that run now and then, or run where cores are free";
  } else if (facts.lacks_cores()) {
    finding.text = "Steps took several times as long now and then, while other programs ran.";
    finding.advice =
        "run where cores are free: kernels wait for the last of their threads to get one; if it "
        "happens there, too, " +
        finding.advice;
  } else if (const std::uint64_t period = period_of(slow); period > 0) {
    finding.key = "regular-slow-steps";
    finding.text = fmt::format("One step in {} takes several times as long as the others.", period);
    finding.evidence +=
        fmt::format("; they are steps {}, {}, {} and so on", slow[0], slow[1], slow[2]);
    finding.advice = fmt::format(
        "look for what the program does every {} steps: an option that counts steps "
        "(--stats-every, "
        "--log-every), an op of your own; --profile spans over step {} names the call",
        period, slow[0]);
  }
  findings.push_back(finding);
}

namespace {

double wait_of(const Step& step) {
  return static_cast<double>(step.data_ns);
}

// Whether steps became slower, or were at first, because most of them waited for data.
bool is_lasting_wait(const std::optional<Uneven>& uneven) {
  if (!uneven || uneven->most().ns != &Step::data_ns) return false;
  std::vector<double> waits;
  for (const Step& step : uneven->slow()) waits.push_back(wait_of(step));
  return 2 * median(std::move(waits)) >= uneven->grew_ns(uneven->most());
}

// The schedule that records steps `first` to `last`, counted from 0.
std::string schedule_of(std::size_t first, std::size_t last) {
  constexpr std::size_t warmed_up = 2, least = 20, most = 1000;  // steps, as by default
  return fmt::format("--profile-schedule skip_first={},active={}",
                     first - std::min(first, warmed_up), std::clamp(last - first + 1, least, most));
}

}  // namespace

// data-wait knows the steps of windows alone. What others wait longer than these is in no finding,
// unless it changed for good.
void find_outside_waits(const Facts& facts, std::vector<Finding>& findings) {
  const std::vector<Step>& all = facts.session.steps;
  const std::vector<std::size_t>& recorded = facts.view.counted;
  if (facts.view.windows.empty() || recorded.empty()) return;
  if (is_lasting_wait(uneven_run(facts))) return;
  double usual_ns = 0, usual_step_ns = 0;
  for (const std::size_t i : recorded) {
    usual_ns += wait_of(all[i]) / static_cast<double>(recorded.size());
    usual_step_ns += length_of(all[i]) / static_cast<double>(recorded.size());
  }
  double lost = 0, longer = 0, longest = 0;
  std::vector<std::size_t> outside;
  for (std::size_t i = warm_up; i < all.size(); ++i) {
    if (std::ranges::binary_search(recorded, i)) continue;
    outside.push_back(i);
    lost += wait_of(all[i]) - usual_ns;
    longer += length_of(all[i]) - usual_step_ns;
    longest = std::max(longest, wait_of(all[i]));
  }
  // A device may compute during a wait.
  if (!facts.on_host) lost = std::min(lost, longer);
  if (lost < least_of_run * facts.run_ns()) return;
  std::vector<std::size_t> slow;
  for (const std::size_t i : outside)
    if (wait_of(all[i]) - usual_ns >= (longest - usual_ns) / 4) slow.push_back(i);
  const std::size_t first = slow.front(), last = slow.back();
  Finding finding{
      .key = "outside-waits",
      .text = "Steps outside of the recorded window waited for data.",
      .evidence = fmt::format("{} more than in the window, where a step waits {}; {} ({} to {}) "
                              "waited longest, at most {}",
                              facts.of_run(lost), quantity(usual_ns, Unit::ns),
                              counted(slow.size(), "step"), all[first].step, all[last].step,
                              quantity(longest, Unit::ns)),
      .run_gain_ns = lost,
      .outside_steps = true};
  const std::string record = "record them: " + schedule_of(first, last);
  std::vector<Step> slow_steps;
  for (const std::size_t i : slow) slow_steps.push_back(all[i]);
  if (const double taken = others_during(facts, slow_steps);
      facts.on_host && facts.analysis.contention.is_much(taken)) {
    finding.evidence +=
        fmt::format("; other programs took {} of the CPU then", quantity(taken, Unit::share));
    finding.advice =
        "the loader's workers need cores as the kernels do: stop the programs, or run where cores "
        "are free; if the waits stay, " +
        record;
  } else {
    finding.evidence += slowest_text(facts.session);
    finding.advice =
        record + "; look at the slow steps that the report lists, and at the files that they read";
  }
  findings.push_back(finding);
}

}  // namespace warpstep::profiler

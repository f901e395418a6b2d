// The procedure: a number a step for each call and part, the difference of medians over steps with
// a bootstrap interval, told when the interval excludes 0, it is large enough, and the family of
// all of them allows it.
#include "profiler/analysis/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "profiler/analysis/compare_bootstrap.h"
#include "profiler/analysis/compare_check.h"
#include "profiler/analysis/compare_series.h"
#include "profiler/analysis/stall_text.h"

namespace warpstep::profiler {
namespace {

using advice::Pair;
using advice::RunSeries;
using advice::Scope;

constexpr std::size_t least_steps = 8;  // a bootstrap of fewer is of no use
constexpr std::size_t few_steps = 20;
constexpr std::uint32_t seed = 20;
// Below, a difference may be the clock's: reading the host's takes 40 ns at both ends, and CUDA's
// events resolve 0.5 us.
constexpr double host_resolution_ns = 100, device_resolution_ns = 500;

struct Scoped {
  Change change;
  Scope scope = Scope::step;
};

// A run whose steps are like their neighbours says less than its number of steps: they are drawn in
// blocks then.
double step_correlation(const RunSeries& run) {
  return advice::correlation(run.series.front().ns, run.strata);
}
std::size_t block_of(const RunSeries& run) {
  return advice::block_length(step_correlation(run), run.steps());
}

std::vector<Scoped> test_all(const RunSeries& before, const RunSeries& after, double resolution,
                             const CompareOptions& options) {
  const advice::Resamples of_before(before.strata, options.resamples, seed, 0, block_of(before));
  const advice::Resamples of_after(after.strata, options.resamples, seed, 1, block_of(after));
  std::vector<Scoped> all;
  std::vector<double> p;
  for (const Pair& pair : advice::aligned(before, after)) {
    Change change{.what = pair.what,
                  .phase = pair.phase,
                  .before_ns = advice::median(pair.before),
                  .after_ns = advice::median(pair.after)};
    const advice::Difference found =
        advice::difference(change.after_ns - change.before_ns, of_before.medians(pair.before),
                           of_after.medians(pair.after));
    change.low = found.low;
    change.high = found.high;
    change.p = found.p;
    p.push_back(found.p);
    all.push_back({change, pair.scope});
  }
  const std::vector<bool> rejected = advice::rejected(p, options.false_discoveries);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Change& change = all[i].change;
    const double least = std::max(options.least_share * change.before_ns, resolution);
    change.is_told = rejected[i] && (change.low > 0 || change.high < 0) &&
                     std::abs(change.after_ns - change.before_ns) > least;
  }
  return all;
}

double delta(const Change& change) {
  return change.after_ns - change.before_ns;
}

// The step first, then parts, then calls, each with the largest change first.
void put_in_order(std::vector<Scoped>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Scoped& a, const Scoped& b) {
    if (a.scope != b.scope) return a.scope < b.scope;
    return std::abs(delta(a.change)) > std::abs(delta(b.change));
  });
}

std::string title(const Change& change) {
  const auto has = [&](std::string_view part) {
    return change.what.find(part) != std::string::npos;
  };
  // Names of calls may have it: "fc1/linear.wgrad", "conv1/conv.dgrad+relu", "update_all".
  const bool is_said = change.phase.empty() || has(".dgrad") || has(".wgrad") || has(change.phase);
  return is_said ? change.what : change.what + " " + change.phase;
}

// Calls stand for the kernels that they are; medians do not add up, so that what is left over is a
// line of its own.
std::vector<std::pair<std::string, double>> waterfall(const std::vector<Scoped>& all) {
  std::vector<std::pair<std::string, double>> lines;
  double calls = 0, sum = 0, step = 0;
  for (const Scoped& scoped : all) {
    if (scoped.scope == Scope::step) step = delta(scoped.change);
    if (scoped.scope != Scope::call || !scoped.change.is_told) continue;
    lines.emplace_back(title(scoped.change), delta(scoped.change));
    calls += lines.back().second;
  }
  sum = calls;
  const bool has_calls = !lines.empty();
  for (const Scoped& scoped : all) {
    if (scoped.scope != Scope::part || !scoped.change.is_told) continue;
    const bool kernels = scoped.change.what == "kernels" && has_calls;
    lines.emplace_back(kernels ? "other kernels" : scoped.change.what,
                       delta(scoped.change) - (kernels ? calls : 0));
    sum += lines.back().second;
  }
  lines.emplace_back("rest", step - sum);
  return lines;
}

std::string verdict(const Comparison& found) {
  const Change& step = found.changes.front();
  const Change* call = nullptr;
  for (const Change& change : found.changes)
    if (&change != &step && change.is_told && call == nullptr) call = &change;
  const std::string interval = fmt::format("95% interval {} to {}", advice::time_text(step.low),
                                           advice::time_text(step.high));
  if (!step.is_told && call == nullptr)
    return fmt::format(
        "No change that stands out from noise: a step takes {} before, {} after ({}).",
        advice::time_text(step.before_ns), advice::time_text(step.after_ns), interval);
  std::string text;
  if (step.is_told) {
    text =
        fmt::format("A step takes {} {} ({} before, {} after, {:+.1f}%; {})",
                    advice::time_text(std::abs(delta(step))), delta(step) > 0 ? "longer" : "less",
                    advice::time_text(step.before_ns), advice::time_text(step.after_ns),
                    step.before_ns > 0 ? 100 * delta(step) / step.before_ns : 0, interval);
  } else {
    text = fmt::format("A step takes as long as before ({})", advice::time_text(step.after_ns));
  }
  const auto& largest = *std::max_element(
      found.waterfall.begin(), found.waterfall.end(),
      [](const auto& a, const auto& b) { return std::abs(a.second) < std::abs(b.second); });
  const bool is_most = step.is_told && 2 * largest.second / delta(step) > 1;
  if (found.waterfall.size() > 1)
    text +=
        fmt::format("; {}: {}, {}{}", is_most ? "most of it" : "the largest part", largest.first,
                    largest.second > 0 ? "+" : "", advice::time_text(largest.second));
  return text + ".";
}

Comparison compared(const RunSeries& before, const RunSeries& after, double resolution,
                    const CompareOptions& options, std::vector<std::string> warnings) {
  if (options.resamples < 100)
    fail<UsageError>("{} resamples are too few for a 95 % interval; take 100 or more",
                     options.resamples);
  for (const auto& [run, which] : {std::pair{&before, "before"}, std::pair{&after, "after"}}) {
    if (run->steps() < least_steps)
      fail<UsageError>("the run {} has {} steps to compare, which are too few: record {} or more",
                       which, run->steps(), few_steps);
    if (run->steps() < few_steps)
      warnings.push_back(
          fmt::format("the run {} has only {} steps: intervals are rough", which, run->steps()));
    if (const double r = step_correlation(*run); r >= 0.5)
      warnings.push_back(
          fmt::format("the steps of the run {} are like their neighbours (correlation {:.2f}): "
                      "something drifts, and intervals are wider for it",
                      which, r));
  }
  std::vector<Scoped> all = test_all(before, after, resolution, options);
  put_in_order(all);
  Comparison found{.warnings = std::move(warnings),
                   .waterfall = waterfall(all),
                   .least_p = 1.0 / options.resamples};
  for (Scoped& scoped : all) found.changes.push_back(std::move(scoped.change));
  found.verdict = verdict(found);
  return found;
}

}  // namespace

Comparison compare(const Session& before, const Session& after, const CompareOptions& options) {
  std::vector<std::string> warnings = advice::check_comparable(before, after, options.force);
  const bool windows =
      advice::window_steps(before) >= least_steps && advice::window_steps(after) >= least_steps;
  if (!windows)
    warnings.emplace_back(
        "not both runs have a window of 8 steps or more: compared by what every step tells, "
        "without "
        "calls");
  const bool on_host = before.computes_on_host() && after.computes_on_host();
  return compared(advice::series_of(before, windows), advice::series_of(after, windows),
                  on_host ? host_resolution_ns : device_resolution_ns, options,
                  std::move(warnings));
}

Comparison compare_halves(const Session& session, const CompareOptions& options) {
  const RunSeries run =
      advice::series_of(session, advice::window_steps(session) >= 2 * least_steps);
  return compared(advice::half_of(run, 0), advice::half_of(run, 1),
                  session.computes_on_host() ? host_resolution_ns : device_resolution_ns, options,
                  {});
}

Table to_table(const Comparison& comparison) {
  Table table{.key = "compare",
              .title = "What changed",
              .note = comparison.verdict,
              .columns = {{"what", "what", Unit::none},
                          {"phase", "phase", Unit::none},
                          {"before_ns", "before", Unit::ns},
                          {"after_ns", "after", Unit::ns},
                          {"change_ns", "change", Unit::ns},
                          {"change", "change %", Unit::share},
                          {"low_ns", "from", Unit::ns},
                          {"high_ns", "to", Unit::ns},
                          {"p", "p", Unit::none},
                          {"told", "stands out", Unit::none}},
              .rows = {}};
  for (const Change& change : comparison.changes) {
    const Cell share =
        change.before_ns > 0 ? Cell(delta(change) / change.before_ns) : Cell(std::monostate());
    table.rows.push_back({change.what, change.phase, change.before_ns, change.after_ns,
                          delta(change), share, change.low, change.high,
                          std::max(change.p, comparison.least_p),
                          std::string(change.is_told ? "yes" : "no")});
  }
  return table;
}

}  // namespace warpstep::profiler

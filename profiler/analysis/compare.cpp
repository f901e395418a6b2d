// The procedure: a number per step for each call and part; the difference of medians over steps
// with a bootstrap interval; significant when the interval excludes 0, the difference is large
// enough and the family of all of them allows it.

#include "profiler/analysis/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "profiler/analysis/compare_bootstrap.h"
#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// What a comparison compares: a number per step: of the step, its parts and its calls.

enum class Scope : std::uint8_t { step, part, call };

struct Series {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<double> ns;  // by step
};

// Steps that are drawn from together: those of a window, or all of a run.
struct RunSeries {
  std::vector<std::size_t> strata;  // sizes, in the order of the steps
  std::vector<Series> series;       // "step", parts, calls in the order of the program
  bool from_windows = false;

  std::size_t steps() const { return series.empty() ? 0 : series.front().ns.size(); }
};

// Steps of complete windows; with `windows` false, and where there are none, all but the first ones
// that warm up, without calls. Of more than `most_compared` every n-th is taken.
constexpr std::size_t most_compared = 2000;
std::size_t window_steps(const Session& session);  // of complete windows
RunSeries series_of(const Session& session, bool windows);
// Every other step from the first or from the second one on.
RunSeries half_of(const RunSeries& run, std::size_t first);

// The series of both runs side by side; one that a run lacks is 0 in each of its steps.
struct Pair {
  std::string what, phase;
  Scope scope = Scope::step;
  std::vector<double> before, after;
};
std::vector<Pair> aligned(const RunSeries& before, const RunSeries& after);

namespace {

struct Chosen {
  std::vector<std::size_t> steps;   // into Session::steps
  std::vector<std::size_t> strata;  // their sizes
};

Chosen thinned(const std::vector<std::vector<std::size_t>>& strata) {
  std::size_t all = 0;
  for (const auto& stratum : strata) all += stratum.size();
  const std::size_t every = (all + most_compared - 1) / most_compared;
  Chosen chosen;
  for (const auto& stratum : strata) {
    const std::size_t before = chosen.steps.size();
    for (std::size_t i = 0; i < stratum.size(); i += every) chosen.steps.push_back(stratum[i]);
    if (chosen.steps.size() > before) chosen.strata.push_back(chosen.steps.size() - before);
  }
  return chosen;
}

std::vector<std::vector<std::size_t>> by_window(const Session& session) {
  std::vector<std::vector<std::size_t>> strata;
  std::size_t from = 0;  // a step belongs to the first window that has it
  for (const Window& window : session.windows) {
    if (window.complete == 0) continue;
    strata.emplace_back();
    for (; from < session.steps.size() && session.steps[from].step <= window.last_step; ++from)
      if (session.steps[from].step >= window.first_step) strata.back().push_back(from);
  }
  return strata;
}

std::vector<std::vector<std::size_t>> without_warm_up(const Session& session) {
  const std::size_t count = session.steps.size();
  std::vector<std::vector<std::size_t>> strata(1);
  for (std::size_t i = std::clamp<std::size_t>(count / 10, 1, 10); i < count; ++i)
    strata[0].push_back(i);
  return strata;
}

void add_parts(const Session& session, const Chosen& chosen, RunSeries& run) {
  const auto add = [&](std::string what, Scope scope, auto value) {
    Series series{.what = std::move(what), .phase = "", .scope = scope, .ns = {}};
    for (const std::size_t i : chosen.steps)
      series.ns.push_back(static_cast<double>(value(session.steps[i])));
    run.series.push_back(std::move(series));
  };
  add("step", Scope::step, [](const Step& s) { return s.end_ns - s.begin_ns; });
  add("data wait", Scope::part, [](const Step& s) { return s.data_ns; });
  add("copies", Scope::part, [](const Step& s) { return s.copies_ns; });
  add("kernels", Scope::part, [](const Step& s) { return s.kernels_ns; });
  add("cpu", Scope::part, [](const Step& s) { return s.cpu_ns; });
  add("other", Scope::part, [](const Step& s) { return s.other_ns; });
}

// Collects the time of calls by step.
class Calls {
 public:
  Calls(const Session& session, const Chosen& chosen)
      : session_(session), count_(chosen.steps.size()), at_(session.steps.size(), count_) {
    for (std::size_t i = 0; i < count_; ++i) at_[chosen.steps[i]] = i;
  }

  void add(std::uint64_t call, const std::string& name, std::uint64_t at_ns, std::uint64_t ns) {
    const std::size_t step = step_at(session_, at_ns);
    if (step == at_.size() || at_[step] == count_) return;
    std::vector<double>& series = ns_[key(call, name)];
    series.resize(count_);
    series[at_[step]] += static_cast<double>(ns);
  }

  // In the order of the program; those that are not in it by name.
  void take(RunSeries& run) {
    for (auto& [key, ns] : ns_)
      run.series.push_back({std::get<1>(key), std::get<2>(key), Scope::call, std::move(ns)});
  }

 private:
  using Key = std::tuple<std::size_t, std::string, std::string>;  // first call, title, phase

  const Key& key(std::uint64_t call, const std::string& name) {
    const auto [at, is_new] = keys_.try_emplace({call, name});
    if (!is_new) return at->second;
    const Json& calls = fields::child(session_.program, "calls");
    const bool is_listed = calls.is_array() && call < calls.size();
    std::string title = is_listed ? fields::text(calls[call], "title", name) : name;
    std::string phase = is_listed ? phase_of(calls[call]) : "";
    // Two calls of one title and phase are one series.
    const auto [first, _] =
        first_.try_emplace({title, phase}, is_listed ? call : ~std::uint64_t{0});
    return at->second = {first->second, std::move(title), std::move(phase)};
  }

  const Session& session_;
  std::size_t count_;
  std::vector<std::size_t> at_;  // of a step's index: which of the chosen; count_: none
  std::map<std::pair<std::uint64_t, std::string>, Key> keys_;
  std::map<std::pair<std::string, std::string>, std::size_t> first_;
  std::map<Key, std::vector<double>> ns_;
};

void add_spans(const Session& session, Calls& calls) {
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::call)
      calls.add(span.arg, session.name(span.name), span.begin_ns, span.end_ns - span.begin_ns);
}

// Device work belongs to the step that launched it.
void add_activities(const Session& session, Calls& calls) {
  std::map<std::uint32_t, std::uint64_t> launched;
  std::map<std::uint64_t, std::uint64_t> call_of_node;
  for (const GraphNode& node : session.graph_nodes) call_of_node[node.node] = node.call;
  for (const Activity& activity : session.activities)
    if (activity.what == What::api && activity.correlation != 0)
      launched.try_emplace(activity.correlation, activity.start_ns);
  for (const Activity& activity : session.activities) {
    if (activity.what != What::kernel && activity.what != What::copy && activity.what != What::set)
      continue;
    if (activity.start_ns == 0 || activity.end_ns == 0) continue;
    const auto node = call_of_node.find(activity.graph_node);
    std::uint64_t call = activity.external == 0 ? ~std::uint64_t{0} : activity.external - 1U;
    if (activity.graph_node != 0 && node != call_of_node.end()) call = node->second;
    if (call == ~std::uint64_t{0}) continue;
    const auto launch = launched.find(activity.correlation);
    calls.add(call, session.name(activity.name),
              launch == launched.end() ? activity.start_ns : launch->second,
              activity.end_ns - activity.start_ns);
  }
}

}  // namespace

std::size_t window_steps(const Session& session) {
  std::size_t count = 0;
  for (const auto& stratum : by_window(session)) count += stratum.size();
  return count;
}

RunSeries series_of(const Session& session, bool windows) {
  const Chosen chosen = thinned(windows ? by_window(session) : without_warm_up(session));
  RunSeries run{.strata = chosen.strata, .series = {}, .from_windows = windows};
  add_parts(session, chosen, run);
  if (!windows) return run;
  Calls calls(session, chosen);
  // On a device a call's span is the time to enqueue it.
  if (session.computes_on_host()) {
    add_spans(session, calls);
  } else {
    add_activities(session, calls);
  }
  calls.take(run);
  return run;
}

RunSeries half_of(const RunSeries& run, std::size_t first) {
  RunSeries half{.strata = {}, .series = run.series, .from_windows = run.from_windows};
  for (Series& series : half.series) {
    std::vector<double> ns;
    for (std::size_t i = first; i < series.ns.size(); i += 2) ns.push_back(series.ns[i]);
    series.ns = std::move(ns);
  }
  std::size_t at = 0;
  for (const std::size_t size : run.strata) {
    std::size_t of_half = 0;
    for (std::size_t i = at; i < at + size; ++i) of_half += i % 2 == first ? 1 : 0;
    if (of_half > 0) half.strata.push_back(of_half);
    at += size;
  }
  return half;
}

std::vector<Pair> aligned(const RunSeries& before, const RunSeries& after) {
  std::vector<Pair> pairs;
  const auto find = [&](const Series& series) {
    return std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return pair.scope == series.scope && pair.what == series.what && pair.phase == series.phase;
    });
  };
  for (const Series& series : before.series)
    pairs.push_back({series.what, series.phase, series.scope, series.ns,
                     std::vector<double>(after.steps(), 0.0)});
  for (const Series& series : after.series) {
    auto at = find(series);
    if (at == pairs.end())
      at = pairs.insert(
          pairs.end(),
          {series.what, series.phase, series.scope, std::vector<double>(before.steps(), 0.0), {}});
    at->after = series.ns;
  }
  return pairs;
}

namespace {

constexpr std::size_t least_steps = 8;  // a bootstrap of fewer is of no use
constexpr std::size_t rough_steps = 20;
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
  return correlation(run.series.front().ns, run.strata);
}
std::size_t block_of(const RunSeries& run) {
  return block_length(step_correlation(run), run.steps());
}

std::vector<Scoped> test_all(const RunSeries& before, const RunSeries& after, double resolution,
                             const CompareOptions& options) {
  const Resamples of_before(before.strata, options.resamples, seed, 0, block_of(before));
  const Resamples of_after(after.strata, options.resamples, seed, 1, block_of(after));
  std::vector<Scoped> all;
  std::vector<double> p;
  for (const Pair& pair : aligned(before, after)) {
    Change change{.what = pair.what,
                  .phase = pair.phase,
                  .before_ns = median(pair.before),
                  .after_ns = median(pair.after)};
    const Difference found =
        median_difference(change.after_ns - change.before_ns, of_before.medians(pair.before),
                          of_after.medians(pair.after));
    change.low = found.low;
    change.high = found.high;
    change.p = found.p;
    p.push_back(found.p);
    all.push_back({change, pair.scope});
  }
  const std::vector<bool> is_rejected = rejected(p, options.false_discoveries);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Change& change = all[i].change;
    const double least = std::max(options.least_share * change.before_ns, resolution);
    change.is_significant = is_rejected[i] && (change.low > 0 || change.high < 0) &&
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
// separate line.
std::vector<std::pair<std::string, double>> waterfall(const std::vector<Scoped>& all) {
  std::vector<std::pair<std::string, double>> lines;
  double calls = 0, sum = 0, step = 0;
  for (const Scoped& scoped : all) {
    if (scoped.scope == Scope::step) step = delta(scoped.change);
    if (scoped.scope != Scope::call || !scoped.change.is_significant) continue;
    lines.emplace_back(title(scoped.change), delta(scoped.change));
    calls += lines.back().second;
  }
  sum = calls;
  const bool has_calls = !lines.empty();
  for (const Scoped& scoped : all) {
    if (scoped.scope != Scope::part || !scoped.change.is_significant) continue;
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
    if (&change != &step && change.is_significant && call == nullptr) call = &change;
  const std::string interval = fmt::format("95 % interval {} to {}", quantity(step.low, Unit::ns),
                                           quantity(step.high, Unit::ns));
  if (!step.is_significant && call == nullptr)
    return fmt::format("No significant change: a step takes {} before, {} after ({}).",
                       quantity(step.before_ns, Unit::ns), quantity(step.after_ns, Unit::ns),
                       interval);
  std::string text;
  if (step.is_significant) {
    text =
        fmt::format("A step takes {} {} ({} before, {} after, {:+.1f} %; {})",
                    quantity(std::abs(delta(step)), Unit::ns), delta(step) > 0 ? "longer" : "less",
                    quantity(step.before_ns, Unit::ns), quantity(step.after_ns, Unit::ns),
                    step.before_ns > 0 ? 100 * delta(step) / step.before_ns : 0, interval);
  } else {
    text = fmt::format("A step takes as long as before ({})", quantity(step.after_ns, Unit::ns));
  }
  const auto& largest = *std::max_element(
      found.waterfall.begin(), found.waterfall.end(),
      [](const auto& a, const auto& b) { return std::abs(a.second) < std::abs(b.second); });
  const bool is_most = step.is_significant && 2 * largest.second / delta(step) > 1;
  if (found.waterfall.size() > 1)
    text +=
        fmt::format("; {}: {}, {}{}", is_most ? "most of it" : "the largest part", largest.first,
                    largest.second > 0 ? "+" : "", quantity(largest.second, Unit::ns));
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
                       which, run->steps(), rough_steps);
    if (run->steps() < rough_steps)
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

bool samples_counters(const Session& session) {
  return !fields::text(fields::child(session.stamp, "profiler"), "counters").empty();
}

// What one run's recording did to it.
void note_recording(const Session& before, const Session& after,
                    std::vector<std::string>& warnings) {
  if (samples_counters(before) != samples_counters(after))
    warnings.push_back(
        fmt::format("the GPU's clocks were locked by PM sampling in the run {} only: give "
                    "--profile-counters to both or to none",
                    samples_counters(before) ? "before" : "after"));
  for (const auto& [run, which] : {std::pair{&before, "before"}, std::pair{&after, "after"}}) {
    const std::uint64_t lost = run->losses.entries + run->losses.activities;
    if (lost > 0)
      warnings.push_back(fmt::format(
          "the run {} lost {} records: sums of its calls may be too small", which, lost));
  }
}

}  // namespace

Comparison compare(const Session& before, const Session& after, const CompareOptions& options) {
  Footing footing = compare_footing(before, after, options.force);
  std::vector<std::string> warnings = std::exchange(footing.warnings, {});
  note_recording(before, after, warnings);
  const bool windows = window_steps(before) >= least_steps && window_steps(after) >= least_steps;
  if (!windows)
    warnings.emplace_back(
        "not both runs have a window of 8 steps or more: compared by per-step totals, without "
        "calls");
  const bool on_host = before.computes_on_host() && after.computes_on_host();
  Comparison found =
      compared(series_of(before, windows), series_of(after, windows),
               on_host ? host_resolution_ns : device_resolution_ns, options, std::move(warnings));
  if (!footing.is_equal()) found.verdict = footing_verdict(footing) + " " + found.verdict;
  found.footing = std::move(footing);
  return found;
}

Comparison compare_halves(const Session& session, const CompareOptions& options) {
  const RunSeries run = series_of(session, window_steps(session) >= 2 * least_steps);
  return compared(half_of(run, 0), half_of(run, 1),
                  session.computes_on_host() ? host_resolution_ns : device_resolution_ns, options,
                  {});
}

Table to_table(const Comparison& comparison) {
  Table table{.key = "compare",
              .title = "What changed",
              .note =
                  "Medians per step; significant: the interval excludes 0, the change is large "
                  "enough and survives the correction for many comparisons.",
              .columns = {{"what", "what", Unit::none},
                          {"phase", "phase", Unit::none},
                          {"before_ns", "before", Unit::ns},
                          {"after_ns", "after", Unit::ns},
                          {"change_ns", "change", Unit::ns},
                          {"change", "change %", Unit::share},
                          {"low_ns", "from", Unit::ns},
                          {"high_ns", "to", Unit::ns},
                          {"p", "p", Unit::none},
                          {"significant", "significant", Unit::none}},
              .rows = {}};
  for (const Change& change : comparison.changes) {
    const Cell share =
        change.before_ns > 0 ? Cell(delta(change) / change.before_ns) : Cell(std::monostate());
    table.rows.push_back({change.what, change.phase, change.before_ns, change.after_ns,
                          delta(change), share, change.low, change.high,
                          std::max(change.p, comparison.least_p),
                          std::string(change.is_significant ? "yes" : "no")});
  }
  return table;
}

}  // namespace warpstep::profiler

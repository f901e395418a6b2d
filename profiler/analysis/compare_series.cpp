#include "profiler/analysis/compare_series.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/modules.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

std::vector<std::size_t> without_warm_up(const Session& session) {
  const std::size_t count = session.steps.size();
  std::vector<std::size_t> steps;
  for (std::size_t i = std::clamp<std::size_t>(count / 10, 1, 10); i < count; ++i)
    steps.push_back(i);
  return steps;
}

// The n-th steps of runs are compared with each other: in common are those of equal numbers.
void keep_common(const std::vector<const Session*>& runs,
                 std::vector<std::vector<std::size_t>>& steps) {
  std::uint64_t first = 0, last = ~std::uint64_t{0};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (steps[r].empty()) return;
    first = std::max(first, runs[r]->steps[steps[r].front()].step);
    last = std::min(last, runs[r]->steps[steps[r].back()].step);
  }
  std::vector<std::vector<std::size_t>> common = steps;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::erase_if(common[r], [&](std::size_t i) {
      return runs[r]->steps[i].step < first || runs[r]->steps[i].step > last;
    });
    const auto shortest = std::ranges::min_element(
        steps, {}, [](const std::vector<std::size_t>& of_run) { return of_run.size(); });
    constexpr std::size_t enough = 20;
    if (common[r].size() < std::max(shortest->size() / 2, std::min(shortest->size(), enough)))
      return;
  }
  steps = std::move(common);
}

// The last of an update's steps is a multiple of their number; a resume does not change that.
void keep_whole_updates(const Session& session, std::size_t update,
                        std::vector<std::size_t>& steps) {
  if (update == 1) return;
  std::vector<std::size_t> whole;
  for (std::size_t first = 0; first + update <= steps.size();) {
    const std::uint64_t number = session.steps[steps[first]].step;
    // Numbers rise, so that none lacks between two that are as far apart as their places.
    if (number % update != 1 ||
        session.steps[steps[first + update - 1]].step != number + update - 1) {
      ++first;
      continue;
    }
    for (std::size_t i = 0; i < update; ++i) whole.push_back(steps[first++]);
  }
  steps = std::move(whole);
}

std::vector<double> means_of_updates(const std::vector<double>& ns, std::size_t update) {
  std::vector<double> means;
  for (std::size_t first = 0; first + update <= ns.size(); first += update) {
    const auto at = ns.begin() + static_cast<std::ptrdiff_t>(first);
    means.push_back(std::accumulate(at, at + static_cast<std::ptrdiff_t>(update), 0.0) /
                    static_cast<double>(update));
  }
  return means;
}

void add_part_series(const Session& session, const std::vector<std::size_t>& steps,
                     std::vector<Series>& run) {
  const auto add = [&](std::string what, Scope scope, auto value) {
    Series series{.what = std::move(what), .phase = "", .scope = scope, .ns = {}};
    for (const std::size_t i : steps)
      series.ns.push_back(static_cast<double>(value(session.steps[i])));
    run.push_back(std::move(series));
  };
  add("step", Scope::step, [](const Step& s) { return s.end_ns - s.begin_ns; });
  add("data wait", Scope::part, [](const Step& s) { return s.data_ns; });
  add("copies", Scope::part, [](const Step& s) { return s.copies_ns; });
  add("kernels", Scope::part, [](const Step& s) { return s.kernels_ns; });
  add("cpu", Scope::part, [](const Step& s) { return s.cpu_ns; });
  add("other", Scope::part, [](const Step& s) { return s.other_ns; });
}

// Collects the time of calls by step.
class CallSeries {
 public:
  CallSeries(const Session& session, const std::vector<std::size_t>& steps, std::size_t depth)
      : session_(session),
        count_(steps.size()),
        at_(session.steps.size(), count_),
        module_of_(call_modules(session, depth)) {
    for (std::size_t i = 0; i < count_; ++i) at_[steps[i]] = i;
  }

  void add(std::uint64_t call, const std::string& name, std::uint64_t at_ns, std::uint64_t ns) {
    const std::size_t step = step_at(session_, at_ns);
    if (step == at_.size() || at_[step] == count_) return;
    std::vector<double>& series = ns_[key(call, name)];
    series.resize(count_);
    series[at_[step]] += static_cast<double>(ns);
    if (call >= module_of_.size() || module_of_[call].empty()) return;
    Module& module = modules_[module_of_[call]];
    module.calls.insert(call);
    module.ns.resize(count_);
    module.ns[at_[step]] += static_cast<double>(ns);
  }

  // In the order of the program; those that are not in it by name. A module of one call is that
  // call.
  void take(std::vector<Series>& run) {
    std::map<std::uint64_t, Series> modules;  // by the first call
    for (auto& [path, module] : modules_)
      if (module.calls.size() > 1)
        modules[*module.calls.begin()] = {path, "module", Scope::module, std::move(module.ns)};
    for (auto& [first, series] : modules) run.push_back(std::move(series));
    for (auto& [key, ns] : ns_)
      run.push_back({std::get<1>(key), std::get<2>(key), Scope::call, std::move(ns)});
  }

 private:
  using Key = std::tuple<std::size_t, std::string, std::string>;  // first call, title, phase
  struct Module {
    std::set<std::uint64_t> calls;
    std::vector<double> ns;  // by step
  };

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
  std::vector<std::string> module_of_;  // by call
  std::map<std::string, Module> modules_;
};

void add_call_spans(const Session& session, CallSeries& calls) {
  const IntervalSet exchanges = exchanges_in_calls(session);
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::call)
      calls.add(span.arg, session.name(span.name), span.begin_ns,
                span.end_ns - span.begin_ns - exchanges.within(span.begin_ns, span.end_ns));
}

// Device work belongs to the step in which it begins, as in a report: steps are as long as the
// device takes, whenever the host launches.
void add_call_activities(const Session& session, CallSeries& calls) {
  for (const Activity& activity : session.activities) {
    if (!is_on_device(activity) || activity.what == What::graph || !has_times(activity)) continue;
    if (const auto call = call_of(activity))
      calls.add(*call, session.name(activity.name), activity.start_ns,
                activity.end_ns - activity.start_ns);
  }
}

}  // namespace

std::vector<ChosenSteps> choose_steps(const std::vector<const Session*>& runs, std::size_t least) {
  std::vector<std::vector<std::size_t>> totals, calls;
  for (const Session* run : runs) {
    totals.push_back(without_warm_up(*run));
    calls.push_back(steps_of(*run, complete_windows(*run)));
  }
  keep_common(runs, totals);
  keep_common(runs, calls);
  std::vector<ChosenSteps> chosen(runs.size());
  bool has_calls = true;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::size_t update = chosen[r].update = steps_per_update(*runs[r]);
    keep_whole_updates(*runs[r], update, totals[r]);
    keep_whole_updates(*runs[r], update, calls[r]);
    has_calls = has_calls && calls[r].size() >= least && calls[r].size() / update >= least / 2;
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    chosen[r].totals = std::move(totals[r]);
    if (has_calls) chosen[r].calls = std::move(calls[r]);
  }
  return chosen;
}

std::vector<Series> series_of(const Session& session, const ChosenSteps& steps, std::size_t depth) {
  std::vector<Series> run;
  add_part_series(session, steps.totals, run);
  if (!steps.calls.empty()) {
    CallSeries calls(session, steps.calls, depth);
    // On a device a call's span is the time to enqueue it.
    if (session.computes_on_host()) {
      add_call_spans(session, calls);
    } else {
      add_call_activities(session, calls);
    }
    calls.take(run);
  }
  if (steps.update > 1)
    for (Series& series : run) series.ns = means_of_updates(series.ns, steps.update);
  return run;
}

bool is_of_calls(Scope scope) {
  return scope == Scope::module || scope == Scope::call;
}

std::vector<Row> rows_of(const std::vector<std::vector<Series>>& runs) {
  std::size_t totals = ~std::size_t{0}, calls = ~std::size_t{0};  // the fewest steps
  for (const std::vector<Series>& run : runs)
    for (const Series& series : run) {
      std::size_t& fewest = is_of_calls(series.scope) ? calls : totals;
      fewest = std::min(fewest, series.ns.size());
    }
  std::vector<Row> rows;
  std::map<std::tuple<Scope, std::string, std::string>, std::size_t> known;
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const Series& series : runs[r]) {
      const std::size_t parts = parts_of(is_of_calls(series.scope) ? calls : totals);
      const auto [at, is_new] =
          known.try_emplace({series.scope, series.what, series.phase}, rows.size());
      if (is_new)
        rows.push_back({series.what, series.phase, series.scope,
                        std::vector<std::vector<double>>(runs.size(), std::vector<double>(parts)),
                        std::vector<double>(runs.size())});
      rows[at->second].runs[r] = part_medians(series.ns, parts);
      rows[at->second].fast[r] = fast_level(series.ns);
    }
  return rows;
}

}  // namespace warpstep::profiler

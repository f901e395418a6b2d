#include "profiler/analysis/compare_series.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "profiler/analysis/counted.h"
#include "profiler/analysis/fields.h"
#include "profiler/analysis/program_view.h"

namespace warpstep::profiler::advice {
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

  // In the order of the program; those that it does not tell of by name.
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
    const bool is_told = calls.is_array() && call < calls.size();
    std::string title = is_told ? fields::text(calls[call], "title", name) : name;
    std::string phase = is_told ? analysis::phase_of(calls[call]) : "";
    // Two calls of one title and phase are one series.
    const auto [first, _] = first_.try_emplace({title, phase}, is_told ? call : ~std::uint64_t{0});
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

}  // namespace warpstep::profiler::advice

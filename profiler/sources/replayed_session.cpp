#include "profiler/sources/replayed_session.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/core/record.h"

namespace warpstep::profiler {
namespace {

struct Launched {
  std::uint64_t begin_ns = ~std::uint64_t{0}, end_ns = 0;
};

class StepFinder {
 public:
  explicit StepFinder(Session& session) : session_(session) {
    std::map<std::uint32_t, Launched> graphs;  // by the correlation of their launch
    for (const Activity& activity : session.activities) {
      const bool is_work = activity.what == What::kernel || activity.what == What::graph;
      if (!is_work || activity.start_ns >= activity.end_ns) continue;
      if (activity.graph_node == 0 && activity.what == What::kernel) {
        others_.push_back(activity.start_ns);
        continue;
      }
      Launched& graph = graphs[activity.correlation];
      graph.begin_ns = std::min(graph.begin_ns, activity.start_ns);
      graph.end_ns = std::max(graph.end_ns, activity.end_ns);
    }
    for (const auto& [correlation, graph] : graphs) graphs_.push_back(graph);
    std::ranges::sort(graphs_, {}, &Launched::begin_ns);
    std::ranges::sort(others_);
    name_launching_thread(graphs);
  }

  // Whether it has graphs.
  bool add_window(Window window) {
    const std::uint64_t before = session_.steps.size();
    std::uint64_t end = 0;  // of the step before; 0: none
    for (const Launched& graph : graphs_) {
      if (graph.begin_ns < window.begin_ns || graph.end_ns > window.end_ns) continue;
      const std::uint64_t works_from = std::max(graph.begin_ns, end);
      const std::uint64_t begin = end == 0 || has_others(end, works_from) ? works_from : end;
      if (graph.end_ns <= works_from) continue;
      end = graph.end_ns;
      add_step(begin, works_from, end);
    }
    const bool has_graphs = session_.steps.size() > before;
    if (!has_graphs) add_step(window.begin_ns, window.end_ns, window.end_ns);
    window.first_step = before + 1;
    window.last_step = session_.steps.size();
    session_.windows.push_back(window);
    return has_graphs;
  }

 private:
  bool has_others(std::uint64_t from, std::uint64_t until) const {
    const auto next = std::ranges::lower_bound(others_, from);
    return next != others_.end() && *next < until;
  }

  void add_step(std::uint64_t begin, std::uint64_t works_from, std::uint64_t end) {
    session_.steps.push_back({.step = session_.steps.size() + 1,
                              .epoch = 1,
                              .begin_ns = begin,
                              .end_ns = end,
                              .kernels_ns = end - works_from,
                              .other_ns = works_from - begin});
  }

  // Of its calls and waits the report tells.
  void name_launching_thread(const std::map<std::uint32_t, Launched>& graphs) {
    std::map<std::uint32_t, std::size_t> launches;  // by thread
    for (const Activity& activity : session_.activities)
      if (activity.what == What::api)
        launches[activity.stream] += graphs.contains(activity.correlation) ? 1000 : 1;
    const auto most =
        std::ranges::max_element(launches, {}, [](const auto& one) { return one.second; });
    if (most != launches.end()) session_.threads.push_back({most->first, "main"});
  }

  Session& session_;
  std::vector<Launched> graphs_;       // by begin
  std::vector<std::uint64_t> others_;  // begins of kernels outside of graphs
};

}  // namespace

Session replayed_session(Traced traced) {
  Session session;
  session.names = record::names();  // the parser interned its own
  session.devices = std::move(traced.devices);
  session.activities = std::move(traced.activities);
  session.clocks = std::move(traced.clocks);
  session.losses = traced.losses;
  session.notes = std::move(traced.notes);
  StepFinder steps(session);
  bool has_graphs = false;
  for (const Window& window : traced.windows) has_graphs |= steps.add_window(window);
  session.notes.emplace_back(
      has_graphs
          ? "the raw records do not have the run's steps: here a step is what one graph did, "
            "and the time since the one before unless other kernels ran in it"
          : "the raw records do not have the run's steps: here each window is one step");
  return session;
}

}  // namespace warpstep::profiler

#include "profiler/analysis/critical_path.h"

#include <algorithm>
#include <map>

#include "profiler/analysis/path_walk.h"

namespace warpstep::profiler {

using namespace analysis;

namespace {

// The number of the first step of the last complete window.
std::uint64_t begin_of_last_window(const Session& session, const StepIndex& steps) {
  const std::uint64_t last = session.steps[steps.step(steps.size() - 1)].step;
  std::uint64_t first = 0;
  for (const Window& window : session.windows)
    if (window.complete != 0 && window.first_step <= last)
      first = std::max(first, window.first_step);
  return first;
}

// Of lengths in the middle; of equal ones, the first.
std::size_t median_step(const Session& session, const StepIndex& steps) {
  std::vector<std::size_t> order;
  const std::uint64_t first = begin_of_last_window(session, steps);
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (session.steps[steps.step(i)].step >= first) order.push_back(i);
  const auto length = [&](std::size_t i) {
    return steps.times()[i].end_ns - steps.times()[i].begin_ns;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  const std::uint64_t median = length(order[(order.size() - 1) / 2]);
  return *std::find_if(order.begin(), order.end(),
                       [&](std::size_t i) { return length(i) == median; });
}

}  // namespace

CriticalPath critical_path(const Session& session) {
  CriticalPath path;
  const StepIndex steps(session);
  if (steps.size() == 0) return path;
  const std::size_t median = median_step(session, steps);
  const PathWalk walk(session);
  std::map<std::string, std::uint64_t> by_bound;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::vector<PathEdge> edges = walk.edges(steps.times()[i]);
    for (const PathEdge& edge : edges) by_bound[edge.bound] += edge.end_ns - edge.begin_ns;
    if (i == median) path.edges = std::move(edges);
  }
  path.step = session.steps[steps.step(median)].step;
  const double n = static_cast<double>(steps.size()), all = static_cast<double>(steps.total_ns());
  for (const auto& [bound, sum] : by_bound) {
    const double ns = static_cast<double>(sum);
    path.shares.push_back({bound, ns / n, ns / all, ns / n});
  }
  std::stable_sort(path.shares.begin(), path.shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.ns > b.ns; });
  return path;
}

}  // namespace warpstep::profiler

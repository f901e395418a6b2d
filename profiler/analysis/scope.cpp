#include "profiler/analysis/scope.h"

#include <algorithm>
#include <numeric>

namespace warpstep::profiler::analysis {
namespace {

// When something was recorded from which a step's parts can be told.
std::vector<Interval> traced_times(const Session& session) {
  std::vector<Interval> times;
  if (session.computes_on_host()) {
    const auto trainer = trainer_thread(session);
    for (const Span& span : session.spans)
      if (span.thread == trainer) times.push_back({span.begin_ns, span.end_ns});
  } else {
    for (const Activity& activity : session.activities)
      if (is_on_device(activity)) times.push_back({activity.start_ns, activity.end_ns});
  }
  return merged(std::move(times));
}

bool overlaps(const Window& window, const std::vector<Interval>& traced) {
  const auto after = std::upper_bound(
      traced.begin(), traced.end(), window.begin_ns,
      [](std::uint64_t at, const Interval& interval) { return at < interval.end_ns; });
  return after != traced.end() && after->begin_ns < window.end_ns;
}

// Of complete windows that `takes` takes.
template <class Takes>
std::vector<std::size_t> steps_in_windows(const Session& session, const Takes& takes) {
  std::vector<Interval> numbers;  // of steps, the end not included
  for (const Window& window : session.windows)
    if (window.complete != 0 && takes(window))
      numbers.push_back({window.first_step, std::max(window.last_step, window.last_step + 1)});
  numbers = merged(std::move(numbers));
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < session.steps.size(); ++i) {
    const std::uint64_t number = session.steps[i].step;
    const auto after =
        std::upper_bound(numbers.begin(), numbers.end(), number,
                         [](std::uint64_t n, const Interval& in) { return n < in.begin_ns; });
    if (after != numbers.begin() && number < std::prev(after)->end_ns) steps.push_back(i);
  }
  return steps;
}

}  // namespace

std::optional<std::uint32_t> trainer_thread(const Session& session) {
  if (session.threads.empty()) return std::nullopt;
  std::vector<std::uint64_t> waits(session.threads.size());
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::wait) ++waits[span.thread];
  const auto most = std::max_element(waits.begin(), waits.end());
  if (*most > 0) return static_cast<std::uint32_t>(most - waits.begin());
  const auto main = std::find_if(session.threads.begin(), session.threads.end(),
                                 [](const Thread& thread) { return thread.name == "main"; });
  if (main == session.threads.end()) return 0;
  return static_cast<std::uint32_t>(main - session.threads.begin());
}

bool is_of_thread(const Session& session, const Activity& activity,
                  std::optional<std::uint32_t> thread) {
  return thread && activity.stream == session.threads[*thread].system;
}

bool tells_graph_kernels(const Session& session) {
  return std::any_of(session.activities.begin(), session.activities.end(),
                     [](const Activity& a) { return a.what == What::kernel && a.graph_node != 0; });
}

std::vector<Interval> step_times(const Session& session) {
  std::vector<Interval> times;
  std::uint64_t end = 0;
  for (const Step& step : session.steps) {
    end = std::max(end, step.begin_ns);
    times.push_back({end, std::max(end, step.end_ns)});
    end = times.back().end_ns;
  }
  return times;
}

std::vector<std::size_t> recorded_steps(const Session& session) {
  const std::vector<Interval> traced = traced_times(session);
  return steps_in_windows(session, [&](const Window& window) { return overlaps(window, traced); });
}

std::vector<std::size_t> counted_steps(const Session& session) {
  std::vector<std::size_t> steps = recorded_steps(session);
  if (steps.empty()) steps = steps_in_windows(session, [](const Window&) { return true; });
  if (!steps.empty()) return steps;
  steps.resize(session.steps.size());
  std::iota(steps.begin(), steps.end(), std::size_t{0});
  if (steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

StepIndex::StepIndex(const Session& session) : steps_(recorded_steps(session)) {
  const std::vector<Interval> all = step_times(session);
  for (const std::size_t step : steps_) times_.push_back(all[step]);
}

int StepIndex::at(std::uint64_t at_ns) const {
  const auto after =
      std::upper_bound(times_.begin(), times_.end(), at_ns,
                       [](std::uint64_t at, const Interval& time) { return at < time.begin_ns; });
  if (after == times_.begin() || at_ns >= std::prev(after)->end_ns) return -1;
  return static_cast<int>(after - times_.begin()) - 1;
}

Launches::Launches(const Session& session) : session_(session) {
  for (std::size_t i = 0; i < session.activities.size(); ++i) {
    const Activity& activity = session.activities[i];
    if (activity.what == What::api && activity.correlation != 0)
      by_correlation_.emplace(activity.correlation, static_cast<std::uint32_t>(i));
  }
}

const Activity* Launches::find(std::uint32_t correlation) const {
  const auto found = by_correlation_.find(correlation);
  return found == by_correlation_.end() ? nullptr : &session_.activities[found->second];
}

}  // namespace warpstep::profiler::analysis

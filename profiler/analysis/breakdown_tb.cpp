#include <algorithm>

#include "profiler/analysis/categories.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler::analysis {
namespace {

struct DeviceWork {  // that a step launched
  std::uint64_t count = 0, first_ns = UINT64_MAX, last_ns = 0;
};

struct AllWork {
  std::vector<DeviceWork> of_step;
  std::vector<Interval> of_none;  // launched outside every step
};

// In which a launch lies wholly; none: steps.size().
std::size_t step_of(const Activity& launch, const std::vector<Interval>& steps) {
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), launch.start_ns,
                       [](std::uint64_t at, const Interval& step) { return at < step.begin_ns; });
  if (after == steps.begin() || std::prev(after)->end_ns < launch.end_ns) return steps.size();
  return static_cast<std::size_t>(after - steps.begin()) - 1;
}

AllWork find_device_work(const Session& session, const std::vector<Interval>& steps) {
  AllWork all{std::vector<DeviceWork>(steps.size()), {}};
  const Launches launches(session);
  for (const Activity& activity : session.activities) {
    if (!is_on_device(activity)) continue;
    const Activity* launch = launches.find(activity.correlation);
    const std::size_t step = launch == nullptr ? steps.size() : step_of(*launch, steps);
    if (step == steps.size()) {
      all.of_none.push_back({activity.start_ns, activity.end_ns});
      continue;
    }
    DeviceWork& work = all.of_step[step];
    ++work.count;
    work.first_ns = std::min(work.first_ns, activity.start_ns);
    work.last_ns = std::max(work.last_ns, activity.end_ns);
  }
  return all;
}

// Steps at the end without any device work, then the last one if it has less than 0.8 of the one
// before: tracing stopped in them.
std::vector<bool> kept(const std::vector<DeviceWork>& of_step) {
  std::vector<bool> is_kept(of_step.size(), true);
  std::size_t n = of_step.size();
  while (n > 0 && of_step[n - 1].count == 0) --n;
  if (n == 0) return is_kept;  // nothing ran on a device
  if (n > 1 &&
      static_cast<double>(of_step[n - 1].count) < 0.8 * static_cast<double>(of_step[n - 2].count))
    --n;
  std::fill(is_kept.begin() + static_cast<std::ptrdiff_t>(n), is_kept.end(), false);
  return is_kept;
}

}  // namespace

TbSteps tb_steps(const Session& session, const std::vector<std::size_t>& steps) {
  const std::vector<Interval> all = step_times(session);
  TbSteps tb;
  for (const std::size_t step : steps) tb.times.push_back(all[step]);
  if (steps.empty()) return tb;
  const AllWork work = find_device_work(session, tb.times);
  tb.is_kept = kept(work.of_step);
  std::uint64_t previous_end = 0;
  for (const Interval& early : work.of_none)
    if (early.end_ns < work.of_step[0].first_ns && work.of_step[0].count > 0)
      previous_end = std::max(previous_end, early.end_ns);
  for (std::size_t i = 0; i < tb.times.size(); ++i) {
    Interval& time = tb.times[i];
    time.begin_ns = std::max(time.begin_ns, previous_end);
    time.end_ns = std::max({time.begin_ns, time.end_ns, work.of_step[i].last_ns});
    previous_end = time.end_ns;
  }
  return tb;
}

}  // namespace warpstep::profiler::analysis

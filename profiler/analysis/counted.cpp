#include "profiler/analysis/counted.h"

#include <algorithm>
#include <cmath>

#include "profiler/analysis/fields.h"

namespace warpstep::profiler::advice {
namespace {

Level level_between(const Session& session, std::string_view metric, std::uint64_t begin_ns,
                    std::uint64_t end_ns) {
  Level level;
  double sum = 0;
  for (const Sample& sample : session.samples) {
    if (sample.at_ns < begin_ns || sample.at_ns > end_ns || session.name(sample.name) != metric)
      continue;
    level.most = level.count == 0 ? sample.value : std::max(level.most, sample.value);
    sum += sample.value;
    ++level.count;
  }
  if (level.count > 0) level.mean = sum / static_cast<double>(level.count);
  return level;
}

}  // namespace

std::vector<std::size_t> counted_steps(const Session& session) {
  std::vector<std::size_t> counted;
  for (std::size_t i = 0; i < session.steps.size(); ++i) {
    const std::uint64_t number = session.steps[i].step;
    const auto has_it = [&](const Window& window) {
      return window.complete != 0 && window.first_step <= number && number <= window.last_step;
    };
    if (std::any_of(session.windows.begin(), session.windows.end(), has_it)) counted.push_back(i);
  }
  if (counted.empty())
    for (std::size_t i = 1; i < session.steps.size(); ++i) counted.push_back(i);
  return counted;
}

bool in_windows(const Session& session, std::uint64_t at_ns) {
  return std::any_of(session.windows.begin(), session.windows.end(), [&](const Window& window) {
    return window.complete != 0 && window.begin_ns <= at_ns && at_ns < window.end_ns;
  });
}

std::uint64_t windows_ns(const Session& session) {
  std::uint64_t sum = 0;
  for (const Window& window : session.windows)
    if (window.complete != 0) sum += window.end_ns - window.begin_ns;
  return sum;
}

std::size_t step_at(const Session& session, std::uint64_t at_ns) {
  const auto after =
      std::upper_bound(session.steps.begin(), session.steps.end(), at_ns,
                       [](std::uint64_t at, const Step& step) { return at < step.begin_ns; });
  if (after == session.steps.begin()) return session.steps.size();
  const auto step = after - 1;
  return at_ns < step->end_ns ? static_cast<std::size_t>(step - session.steps.begin())
                              : session.steps.size();
}

Level level(const Session& session, std::string_view metric) {
  const std::vector<std::size_t> counted = counted_steps(session);
  if (!counted.empty()) {
    const Level within = level_between(session, metric, session.steps[counted.front()].begin_ns,
                                       session.steps[counted.back()].end_ns);
    if (within.count > 0) return within;
  }
  return level_between(session, metric, 0, ~std::uint64_t{0});
}

int cores(const Session& session) {
  double count = fields::number(session.loader, "cores");
  if (count <= 0) count = fields::number(fields::child(session.stamp, "cpu"), "cores");
  const double quota = fields::number(fields::child(session.stamp, "cgroup"), "cpu_quota_cores");
  if (quota > 0 && (count <= 0 || quota < count)) count = std::max(1.0, std::floor(quota));
  return static_cast<int>(std::clamp(count, 0.0, 4096.0));
}

}  // namespace warpstep::profiler::advice

#include "profiler/analysis/disturbance.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

// Of the run's own GPUs: another one of the machine may idle at a low clock.
std::vector<double> clocks_of(const Session& session) {
  const std::string_view what = " sm clock MHz";
  const SampledMetrics metrics(session);
  const IntervalSet steps(step_times(session));
  std::vector<double> clocks;
  for (const Device* const device : run_devices(session))
    clocks.push_back(level_of(metrics.of(fmt::format("gpu {}{}", device->id, what)), steps).mean);
  if (!session.devices.empty()) return clocks;
  for (const auto& [name, samples] : metrics.by_name())  // without CUPTI no device is described
    if (name.starts_with("gpu ") && name.ends_with(what))
      if (const MetricLevel level = level_of(samples, steps); level.count > 0)
        clocks.push_back(level.mean);
  return clocks;
}

}  // namespace

Disturbance disturbance_of(const Session& session) {
  Disturbance found{.clocks_mhz = clocks_of(session)};
  const auto use = core_use(session, merged(step_times(session)));
  if (!use) return found;
  found.cores = use->cores;
  found.others = use->others();
  found.stolen = use->stolen;
  found.lost = std::max(0.0, found.others + found.stolen - use->idle());
  return found;
}

std::vector<double> lost_shares(const std::vector<Disturbance>& runs) {
  std::vector<double> highest;
  for (const Disturbance& run : runs) {
    highest.resize(std::max(highest.size(), run.clocks_mhz.size()));
    for (std::size_t gpu = 0; gpu < run.clocks_mhz.size(); ++gpu)
      highest[gpu] = std::max(highest[gpu], run.clocks_mhz[gpu]);
  }
  std::vector<double> shares;
  for (const Disturbance& run : runs) {
    double slowest = 1;
    for (std::size_t gpu = 0; gpu < run.clocks_mhz.size(); ++gpu)
      if (const double mhz = run.clocks_mhz[gpu]; mhz > 0)
        slowest = std::min(slowest, mhz / highest[gpu]);
    shares.push_back(run.lost + 1 - slowest);
  }
  return shares;
}

}  // namespace warpstep::profiler

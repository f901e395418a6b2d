#include "profiler/analysis/disturbance.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

struct MetricSum {
  double sum = 0, ns = 0, plain = 0;
  std::size_t count = 0;
  std::uint64_t last_ns = 0;
};

// Of each metric, over the time of the steps. A sample stands for the time since the one before.
std::map<std::string, double> metric_means(const Session& session) {
  if (session.steps.empty()) return {};
  std::map<std::string, MetricSum> sums;
  for (const Sample& sample : session.samples) {
    if (sample.at_ns < session.steps.front().begin_ns || sample.at_ns > session.steps.back().end_ns)
      continue;
    MetricSum& mean = sums[session.name(sample.name)];
    if (mean.count++ == 0) mean.last_ns = session.steps.front().begin_ns;
    const auto covers =
        static_cast<double>(sample.at_ns - std::exchange(mean.last_ns, sample.at_ns));
    mean.sum += covers * sample.value;
    mean.ns += covers;
    mean.plain += sample.value;
  }
  std::map<std::string, double> result;
  for (const auto& [name, mean] : sums)
    result[name] = mean.ns > 0 ? mean.sum / mean.ns : mean.plain / static_cast<double>(mean.count);
  return result;
}

// Of the run's own GPUs: another one of the machine may idle at a low clock.
std::vector<double> clocks_of(const Session& session, const std::map<std::string, double>& means) {
  const std::string_view what = " sm clock MHz";
  std::vector<double> clocks;
  for (const Device* const device : run_devices(session)) {
    const auto mean = means.find(fmt::format("gpu {}{}", device->id, what));
    clocks.push_back(mean == means.end() ? 0 : mean->second);
  }
  if (!session.devices.empty()) return clocks;
  for (const auto& [name, mean] : means)  // a program without CUPTI describes no device
    if (name.starts_with("gpu ") && name.ends_with(what)) clocks.push_back(mean);
  return clocks;
}

}  // namespace

Disturbance disturbance_of(const Session& session) {
  Disturbance found{.clocks_mhz = clocks_of(session, metric_means(session))};
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

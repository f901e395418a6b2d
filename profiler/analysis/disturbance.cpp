#include "profiler/analysis/disturbance.h"

#include <algorithm>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

struct MetricSum {
  double sum = 0;
  std::size_t count = 0;
};

// Of each metric, over the time of the steps.
std::map<std::string, double> metric_means(const Session& session) {
  if (session.steps.empty()) return {};
  std::map<std::string, MetricSum> sums;
  for (const Sample& sample : session.samples) {
    if (sample.at_ns < session.steps.front().begin_ns || sample.at_ns > session.steps.back().end_ns)
      continue;
    MetricSum& mean = sums[session.name(sample.name)];
    mean.sum += sample.value;
    ++mean.count;
  }
  std::map<std::string, double> result;
  for (const auto& [name, mean] : sums) result[name] = mean.sum / static_cast<double>(mean.count);
  return result;
}

// The machine's, which the metric "cpu %" is of: not what the process may use of them.
double machine_cores(const Session& session) {
  const double cores = fields::number(fields::child(session.stamp, "cpu"), "cores");
  return cores > 0 ? cores : fields::number(session.loader, "cores");
}

}  // namespace

Disturbance disturbance_of(const Session& session) {
  Disturbance found{.cores = machine_cores(session)};
  const std::map<std::string, double> metrics = metric_means(session);
  for (const auto& [name, value] : metrics)
    if (name.starts_with("gpu ") && name.ends_with(" sm clock MHz")) found.clocks_mhz[name] = value;
  const auto all = metrics.find("cpu %"), own = metrics.find("process cpu %");
  if (found.cores < 1 || all == metrics.end() || own == metrics.end()) return found;
  const double busy = found.cores * all->second / 100;
  found.others = std::max(0.0, busy - own->second / 100);
  const double idle = std::max(0.0, found.cores - busy);
  found.lost = std::max(0.0, found.others - idle);
  return found;
}

std::vector<double> lost_shares(const std::vector<Disturbance>& runs) {
  std::map<std::string, double> highest;
  for (const Disturbance& run : runs)
    for (const auto& [name, mhz] : run.clocks_mhz) highest[name] = std::max(highest[name], mhz);
  std::vector<double> shares;
  for (const Disturbance& run : runs) {
    double slowest = 1;
    for (const auto& [name, mhz] : run.clocks_mhz)
      if (highest[name] > 0) slowest = std::min(slowest, mhz / highest[name]);
    shares.push_back(run.lost + 1 - slowest);
  }
  return shares;
}

}  // namespace warpstep::profiler

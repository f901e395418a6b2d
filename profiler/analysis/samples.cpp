#include "profiler/analysis/samples.h"

#include <algorithm>
#include <utility>

namespace warpstep::profiler {

SampledMetrics::SampledMetrics(const Session& session) {
  std::vector<std::vector<Sample>*> of_name(session.names.size());
  for (const Sample& sample : session.samples) {
    std::vector<Sample>*& samples = of_name[sample.name];
    if (samples == nullptr) samples = &by_name_[session.name(sample.name)];
    samples->push_back(sample);
  }
}

std::span<const Sample> SampledMetrics::of(std::string_view metric) const {
  const auto found = by_name_.find(metric);
  return found == by_name_.end() ? std::span<const Sample>() : found->second;
}

MetricLevel level_of(std::span<const Sample> metric, const IntervalSet& times) {
  MetricLevel level;
  double sum = 0, ns = 0, plain = 0;
  std::uint64_t last = metric.empty() ? 0 : metric.front().at_ns;
  bool any_inside = false;  // taken then; else all that is known are means that cover some of it
  for (const Sample& sample : metric) {
    const std::uint64_t from = std::exchange(last, sample.at_ns);
    const auto covers = static_cast<double>(times.within(from, sample.at_ns));
    const bool is_inside = times.has(sample.at_ns);
    if (covers <= 0 && !is_inside) continue;
    if (level.count == 0 || (is_inside && !any_inside))
      level.least = level.most = sample.value;
    else if (is_inside == any_inside) {
      level.least = std::min(level.least, sample.value);
      level.most = std::max(level.most, sample.value);
    }
    any_inside |= is_inside;
    sum += covers * sample.value;
    ns += covers;
    plain += sample.value;
    ++level.count;
  }
  if (level.count > 0) level.mean = ns > 0 ? sum / ns : plain / static_cast<double>(level.count);
  return level;
}

}  // namespace warpstep::profiler

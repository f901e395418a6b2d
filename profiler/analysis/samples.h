// The sampled metrics of a session, each by itself. A sample stands for the time since the one
// before of its metric; the first one for none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

class SampledMetrics {
 public:
  explicit SampledMetrics(const Session& session);

  std::span<const Sample> of(std::string_view metric) const;  // by time; empty: not sampled
  const auto& by_name() const { return by_name_; }

 private:
  std::map<std::string, std::vector<Sample>, std::less<>> by_name_;
};

// Of the samples that stand for some of a time or lie in it; its extremes are of those that lie in
// it, if any do.
struct MetricLevel {
  std::size_t count = 0;  // 0: not sampled
  double mean = 0, least = 0, most = 0;
};
MetricLevel level_of(std::span<const Sample> metric,
                     const IntervalSet& times = IntervalSet({{0, ~std::uint64_t{0}}}));

}  // namespace warpstep::profiler

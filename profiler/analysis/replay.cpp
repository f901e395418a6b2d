// The loader again, event by event: what waits come of the times that were recorded.
#include <algorithm>
#include <functional>
#include <vector>

#include "profiler/analysis/loading.h"

namespace warpstep::profiler {
namespace {

// Workers by the time at which they are free, the earliest first.
class Workers {
 public:
  explicit Workers(std::size_t count) : free_(count, 0.0) {}

  // Shares the samples out to whoever is free first, none before `gate`; when the last is done.
  template <class NextService>
  double make(std::size_t samples, double gate, NextService next_service) {
    for (double& at : free_) at = std::max(at, gate);
    // Raising the early ones to the gate keeps the order of the others, but not of the heap.
    std::make_heap(free_.begin(), free_.end(), std::greater<>());
    double end = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      std::pop_heap(free_.begin(), free_.end(), std::greater<>());
      free_.back() += next_service();
      end = std::max(end, free_.back());
      std::push_heap(free_.begin(), free_.end(), std::greater<>());
    }
    return end;
  }

 private:
  std::vector<double> free_;
};

}  // namespace

ReplayResult replay(const std::vector<std::uint64_t>& service_ns, std::int64_t batch,
                    const std::vector<std::uint64_t>& steps_ns, const ReplaySetting& setting,
                    std::size_t steps) {
  ReplayResult result;
  if (service_ns.empty() || steps_ns.empty() || batch < 1) return result;
  const std::size_t prefetch = static_cast<std::size_t>(std::max(1, setting.prefetch));
  const int count = std::max(1, setting.workers);
  const double slow =
      setting.stage_scale *
      (setting.cores > 0 && count > setting.cores ? static_cast<double>(count) / setting.cores : 1);
  Workers workers(static_cast<std::size_t>(count));
  std::vector<double> taken(steps, 0.0);
  std::size_t sample = 0;
  double now = 0, sum = 0;
  for (std::size_t b = 0; b < steps; ++b) {
    const double ready = workers.make(
        static_cast<std::size_t>(batch), b >= prefetch ? taken[b - prefetch] : 0.0,
        [&] { return static_cast<double>(service_ns[sample++ % service_ns.size()]) * slow; });
    const double wait = std::max(0.0, ready - now);
    result.waits_ns.push_back(static_cast<std::uint64_t>(wait));
    if (b >= prefetch) sum += wait;
    now += wait;
    taken[b] = now;
    now += static_cast<double>(steps_ns[b % steps_ns.size()]);
  }
  if (steps > prefetch) result.mean_wait_ns = sum / static_cast<double>(steps - prefetch);
  return result;
}

}  // namespace warpstep::profiler

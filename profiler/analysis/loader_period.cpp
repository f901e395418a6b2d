#include "profiler/analysis/loader_period.h"

#include <numeric>

namespace warpstep::profiler::advice {
namespace {

constexpr std::size_t longest = 128;
constexpr double one_in_p = 0.9;  // of all waiting
constexpr double least = 0.02;    // of a step: what counts as a stall

}  // namespace

int stall_period(const std::vector<std::uint64_t>& waits_ns, double step_ns) {
  const auto total =
      static_cast<double>(std::accumulate(waits_ns.begin(), waits_ns.end(), std::uint64_t{0}));
  if (total < least * step_ns * 3) return 0;
  for (std::size_t period = 2; period <= longest && 3 * period <= waits_ns.size(); ++period) {
    for (std::size_t phase = 0; phase < period; ++phase) {
      double sum = 0;
      std::size_t met = 0, stalled = 0;
      for (std::size_t i = phase; i < waits_ns.size(); i += period, ++met) {
        const auto wait = static_cast<double>(waits_ns[i]);
        sum += wait;
        if (wait > least * step_ns) ++stalled;
      }
      if (sum >= one_in_p * total && stalled >= 3 && stalled + 1 >= met)
        return static_cast<int>(period);
    }
  }
  return 0;
}

}  // namespace warpstep::profiler::advice

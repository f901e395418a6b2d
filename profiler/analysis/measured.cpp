// What a GPU's own counters said, in the complete windows.
#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/device.h"

namespace warpstep::profiler {
namespace {

// A sample is of the time before it: one at a window's end is of the window.
bool is_of_a_window(const Session& session, std::uint64_t at_ns) {
  return std::ranges::any_of(session.windows, [&](const Window& window) {
    return window.complete != 0 && window.begin_ns < at_ns && at_ns <= window.end_ns;
  });
}

std::optional<double> mean_share(const Session& session, const std::string& metric) {
  double sum = 0;
  std::size_t count = 0;
  std::vector<signed char> is_it(session.names.size(), -1);  // by name; -1: not asked yet
  for (const Sample& sample : session.samples) {
    signed char& found = is_it[sample.name];
    if (found < 0) found = session.name(sample.name) == metric ? 1 : 0;
    if (found == 0 || !is_of_a_window(session, sample.at_ns)) continue;
    sum += sample.value;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count) / 100;
}

}  // namespace

MeasuredShares measured_shares(const Session& session, std::uint32_t device) {
  const auto mean = [&](const char* what) {
    return mean_share(session, fmt::format("gpu {} {}", device, what));
  };
  return {mean("SM active %"), mean("tensor pipe %"), mean("DRAM %")};
}

bool tells_kernels(const Session& session) {
  return std::ranges::find(session.activities, What::kernel, &Activity::what) !=
         session.activities.end();
}

}  // namespace warpstep::profiler

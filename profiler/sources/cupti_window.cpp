#include "profiler/sources/cupti_window.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/sources/cupti_clock.h"
#include "profiler/sources/cupti_graphs.h"

namespace warpstep::profiler {
namespace {

// How far a device's time may be off from the host's: what ended earlier than this before a window
// began is of a buffer that CUPTI had held back.
constexpr std::uint64_t tolerance_ns = 1'000'000;

std::uint64_t put_on_our_clock(std::vector<Activity>& activities, const ClockMap& map,
                               std::uint64_t begin_ns) {
  for (Activity& activity : activities) {
    activity.start_ns = map.to_monotonic(activity.start_ns);
    activity.end_ns = std::max(activity.start_ns, map.to_monotonic(activity.end_ns));
  }
  const std::uint64_t late = std::erase_if(activities, [&](const Activity& activity) {
    return activity.end_ns + tolerance_ns < begin_ns;
  });
  std::ranges::stable_sort(activities, {}, &Activity::start_ns);
  return late;
}

}  // namespace

Traced assemble(Parser& parser, const WindowFacts& facts) {
  Parsed parsed = parser.finish(facts.calls);
  Traced traced{.activities = std::move(parsed.activities),
                .graph_nodes = sorted_nodes(facts.calls),
                .clocks = facts.clocks,
                .notes = facts.notes};
  std::uint64_t late = 0;
  if (!facts.clocks.empty()) {
    const ClockMap map(facts.clocks);
    late = put_on_our_clock(traced.activities, map, facts.clocks.front().monotonic_ns);
    if (map.set_by_ns() != 0)
      traced.notes.push_back(fmt::format(
          "The system's clock was set by {:.3f} ms in the window; times of the device are that far "
          "off where it happened.",
          static_cast<double>(map.set_by_ns()) * 1e-6));
  }
  traced.losses.activities = facts.dropped + parsed.unread_parts + late;
  traced.losses.without_times = parsed.without_times;
  if (facts.dropped != 0)
    traced.notes.push_back(fmt::format("CUPTI dropped {} records.", facts.dropped));
  if (parsed.unread_parts != 0)
    traced.notes.push_back(
        fmt::format("{} bytes of CUPTI's records, in {} buffers, are of no kind that is known.",
                    parsed.unread_bytes, parsed.unread_parts));
  if (parsed.without_times != 0)
    traced.notes.push_back(
        fmt::format("{} activities have no times: the device had no memory left for them.",
                    parsed.without_times));
  if (late != 0)
    traced.notes.push_back(fmt::format("{} records of an earlier window came too late.", late));
  return traced;
}

}  // namespace warpstep::profiler

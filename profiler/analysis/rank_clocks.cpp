#include "profiler/analysis/rank_clocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/core/error.h"
#include "profiler/analysis/fields.h"

namespace warpstep::profiler {
namespace {

constexpr std::uint64_t long_enough_for_drift_ns = 1'000'000'000;

const PeerClock& best(std::span<const PeerClock> looks) {
  return *std::min_element(looks.begin(), looks.end(), [](const PeerClock& a, const PeerClock& b) {
    return a.round_trip_ns < b.round_trip_ns;
  });
}

std::int64_t offset(const PeerClock& look) {
  return static_cast<std::int64_t>(look.peer_ns - look.at_ns);
}

RankClockMap from_looks(std::span<const PeerClock> looks) {
  const std::size_t half = (looks.size() + 1) / 2;
  const PeerClock& early = best(looks.first(half));
  const PeerClock& late = looks.size() > half ? best(looks.subspan(half)) : early;
  const bool drifts = late.at_ns >= early.at_ns + long_enough_for_drift_ns;
  const PeerClock& one = drifts || early.round_trip_ns < late.round_trip_ns ? early : late;
  RankClockMap map{.offset_ns = offset(one),
                   .at_ns = one.at_ns,
                   .error_ns = one.round_trip_ns / 2,
                   .how = fmt::format("{} look{} at rank 0's clock", looks.size(),
                                      looks.size() == 1 ? "" : "s")};
  if (drifts) {
    map.drift = static_cast<double>(offset(late) - offset(early)) /
                static_cast<double>(late.at_ns - early.at_ns);
    map.error_ns = std::max(early.round_trip_ns, late.round_trip_ns) / 2;
  }
  return map;
}

std::string machine(const Session& session) {
  return fields::text(session.stamp, "boot");
}

}  // namespace

std::uint64_t RankClockMap::operator()(std::uint64_t ns) const {
  const double since =
      ns >= at_ns ? static_cast<double>(ns - at_ns) : -static_cast<double>(at_ns - ns);
  return ns + static_cast<std::uint64_t>(offset_ns + std::llround(drift * since));
}

RankClockMap clock_map(const Session& session, const Session& first) {
  if (&session == &first) return {.error_ns = 0, .how = "rank 0's own"};
  if (!machine(session).empty() && machine(session) == machine(first))
    return {.error_ns = 0, .how = "the same machine's clock"};
  if (!session.peer_clocks.empty()) return from_looks(session.peer_clocks);
  if (session.clocks.empty() || first.clocks.empty())
    fail<DataError>(
        "a session tells neither of rank 0's clock nor of the wall clock: record the ranks with "
        "--profile-rank RANK@HOST:PORT");
  const ClockReading &ours = session.clocks.front(), &theirs = first.clocks.front();
  const auto to_real = [](const ClockReading& r) {
    return static_cast<std::int64_t>(r.realtime_ns - r.monotonic_ns);
  };
  return {.offset_ns = to_real(ours) - to_real(theirs),
          .at_ns = ours.monotonic_ns,
          .how = "wall clocks, as exact as NTP keeps them"};
}

void move_to_clock(Session& session, const RankClockMap& map, const Session& first) {
  const auto move = [&map](auto&... times) { ((times = map(times)), ...); };
  // The parts of a step are a clock's differences: what drift adds to it, or takes, is in `other`,
  // or in its longest part.
  for (Step& step : session.steps) {
    const std::uint64_t before = step.end_ns - step.begin_ns;
    move(step.begin_ns, step.end_ns);
    const auto change = static_cast<std::int64_t>(step.end_ns - step.begin_ns - before);
    std::uint64_t* const parts[] = {&step.other_ns, &step.cpu_ns, &step.kernels_ns, &step.data_ns,
                                    &step.copies_ns};
    std::uint64_t* const longest =
        *std::max_element(std::begin(parts), std::end(parts),
                          [](const std::uint64_t* a, const std::uint64_t* b) { return *a < *b; });
    *longest += static_cast<std::uint64_t>(change);
  }
  for (Window& window : session.windows) move(window.begin_ns, window.end_ns);
  for (Span& span : session.spans) move(span.begin_ns, span.end_ns);
  for (Activity& activity : session.activities)
    if (activity.start_ns != 0 && activity.end_ns != 0) move(activity.start_ns, activity.end_ns);
  for (Sample& sample : session.samples) move(sample.at_ns);
  session.clocks = first.clocks;
}

}  // namespace warpstep::profiler

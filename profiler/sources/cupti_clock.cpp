#include "profiler/sources/cupti_clock.h"

#include <algorithm>
#include <cstdlib>

namespace warpstep::profiler {
namespace {

// An upper bound for the drift between clocks of one machine: NTP slews by at most 500 ppm.
constexpr double most_drift = 1e-3;
constexpr std::int64_t slack_ns = 20'000;

std::int64_t difference(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a - b);
}

std::uint64_t moved(std::uint64_t monotonic_ns, std::int64_t by) {
  const std::uint64_t sum = monotonic_ns + static_cast<std::uint64_t>(by);
  return static_cast<std::int64_t>(sum) < 1 ? 1 : sum;  // 0 means "no time"
}

}  // namespace

ClockReading read_clocks(const CuptiApi& api) {
  ClockReading best;
  for (int i = 0; i < 5; ++i) {
    std::uint64_t device = 0;
    const std::uint64_t before = api.monotonic_ns();
    const std::uint64_t realtime = api.realtime_ns();
    if (api.get_timestamp(&device) != CUPTI_SUCCESS) device = 0;
    const std::uint64_t after = api.monotonic_ns();
    const std::uint64_t took = after - before;
    if (i == 0 || took < best.error_ns) best = {before + took / 2, realtime, device, took};
  }
  return best;
}

ClockMap::ClockMap(std::span<const ClockReading> readings) {
  const bool has_device =
      std::ranges::all_of(readings, [](const ClockReading& r) { return r.device_ns != 0; });
  const auto point = [&](const ClockReading& reading) {  // CUPTI's clock is the system's
    return Point{has_device ? reading.device_ns : reading.realtime_ns, reading.monotonic_ns};
  };
  for (const ClockReading& reading : readings) points_.push_back(point(reading));
  for (std::size_t i = 0; i + 1 < readings.size(); ++i) {
    const Point from = points_[i], to = points_[i + 1];
    const std::int64_t passed = difference(to.monotonic_ns, from.monotonic_ns);
    const std::int64_t off = difference(to.device_ns, from.device_ns) - passed;
    const std::int64_t allowed =
        slack_ns + static_cast<std::int64_t>(most_drift * static_cast<double>(passed)) +
        static_cast<std::int64_t>(readings[i].error_ns + readings[i + 1].error_ns);
    if (std::abs(off) > allowed)
      set_by_ns_ += off;
    else if (to.device_ns > from.device_ns)
      stretches_.push_back({from, to});
  }
  std::ranges::stable_sort(points_, {}, &Point::device_ns);
  std::ranges::stable_sort(stretches_, {}, [](const Stretch& s) { return s.from.device_ns; });
}

std::uint64_t ClockMap::to_monotonic(std::uint64_t device_ns) const {
  const auto after = std::ranges::upper_bound(stretches_, device_ns, {},
                                              [](const Stretch& s) { return s.from.device_ns; });
  if (after != stretches_.begin()) {
    const Stretch& in = *std::prev(after);
    if (device_ns <= in.to.device_ns) {
      const std::int64_t length = difference(in.to.device_ns, in.from.device_ns);
      const std::int64_t off = difference(in.to.monotonic_ns, in.from.monotonic_ns) - length;
      const std::int64_t into = difference(device_ns, in.from.device_ns);
      const double share = static_cast<double>(into) / static_cast<double>(length);
      return moved(in.from.monotonic_ns,
                   into + static_cast<std::int64_t>(share * static_cast<double>(off)));
    }
  }
  const auto right =
      std::ranges::lower_bound(points_, device_ns, {}, [](const Point& p) { return p.device_ns; });
  auto nearest = right == points_.end() ? std::prev(right) : right;
  if (right != points_.begin() && right != points_.end() &&
      device_ns - std::prev(right)->device_ns <= right->device_ns - device_ns)
    nearest = std::prev(right);
  return moved(nearest->monotonic_ns, difference(device_ns, nearest->device_ns));
}

}  // namespace warpstep::profiler

// Mapping CUPTI's times to CLOCK_MONOTONIC, also when the system's clock is set.
#include "profiler/sources/cupti_clock.h"

#include <gtest/gtest.h>

namespace warpstep::profiler {
namespace {

TEST(CuptiClock, ASetSystemClockDisturbsOneStretch) {
  // One reading per second; between the 2nd and the 3rd the clock is set forward by an hour.
  constexpr std::uint64_t s = 1'000'000'000, hour = 3600 * s, ahead = 1'700'000'000 * s;
  const std::vector<ClockReading> readings{{10 * s, 0, ahead + 10 * s, 40},
                                           {11 * s, 0, ahead + 11 * s, 40},
                                           {12 * s, 0, ahead + 12 * s + hour, 40},
                                           {13 * s, 0, ahead + 13 * s + hour, 40}};
  const ClockMap map(readings);
  EXPECT_EQ(map.set_by_ns(), static_cast<std::int64_t>(hour));
  for (const std::uint64_t at : {9 * s, 10 * s, 10 * s + s / 2, 11 * s, 11 * s + s / 10})
    EXPECT_EQ(map.to_monotonic(ahead + at), at);
  for (const std::uint64_t at : {11 * s + 9 * s / 10, 12 * s, 12 * s + s / 3, 13 * s, 20 * s})
    EXPECT_EQ(map.to_monotonic(ahead + at + hour), at);
}

TEST(CuptiClock, SetBack) {
  constexpr std::uint64_t s = 1'000'000'000, ahead = 1'700'000'000 * s;
  const std::vector<ClockReading> readings{{10 * s, ahead + 10 * s, 0, 40},  // without CUPTI's own
                                           {11 * s, ahead + 11 * s, 0, 40},
                                           {12 * s, ahead + 12 * s - 90 * s, 0, 40},
                                           {13 * s, ahead + 13 * s - 90 * s, 0, 40}};
  const ClockMap map(readings);
  EXPECT_EQ(map.set_by_ns(), -90 * static_cast<std::int64_t>(s));
  EXPECT_EQ(map.to_monotonic(ahead + 10 * s + 5), 10 * s + 5);
  EXPECT_EQ(map.to_monotonic(ahead + 13 * s - 90 * s - 5), 13 * s - 5);
}

}  // namespace
}  // namespace warpstep::profiler

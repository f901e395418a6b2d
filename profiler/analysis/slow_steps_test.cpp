#include "profiler/analysis/slow_steps.h"

#include <gmock/gmock.h>

#include "profiler/recorder/flight.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

TEST(SlowSteps, NamesThePartThatGrewAndWhatRan) {
  SessionBuilder builder;
  builder.thread(7, "loader 0");
  for (int i = 0; i < 9; ++i)
    builder.step(static_cast<std::uint64_t>(i + 1), 1000 * i, 1000 * (i + 1), 900);
  builder.step(10, 9000, 40'000, 900, 30'000);
  Session session = builder.build();
  const std::uint32_t read = builder.name(Kind::stage, "read");
  session.names = builder.raw().names;
  session.past.push_back({SessionBuilder::at(9100), SessionBuilder::at(38'100), 0, read, 1});
  session.kept.push_back({.step = 10, .median_ns = 1'000'000});
  session.kept.push_back({.asked_ns = 5});
  const std::vector<SlowStep> slow = slow_steps(session);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].part, "loader wait");
  EXPECT_EQ(slow[0].grew_ns, 30e6);
  EXPECT_EQ(slow[0].ran, "29.0 ms read (loader 0)");
  EXPECT_EQ(slow_steps_table(slow).rows.size(), 1U);
}

TEST(SlowSteps, CompareAnUpdateWithUpdates) {
  SessionBuilder builder;
  for (int i = 0; i < 24; ++i) {
    const bool updates = i % 4 == 3;
    builder.step(static_cast<std::uint64_t>(i + 1), 9000 * i, 9000 * i + (updates ? 8000 : 1000),
                 updates ? 7000 : 500, i == 23 ? 900 : 0);
  }
  builder.raw().kept.push_back({.step = 24, .median_ns = 1});
  builder.raw().stamp["options"]["accumulate"] = 4;
  const std::vector<SlowStep> slow = slow_steps(builder.build());
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].part, "loader wait");
  EXPECT_EQ(slow[0].grew_ns, 9e5);
}

TEST(SlowSteps, LookAtNoMoreThanARunKeeps) {
  SessionBuilder builder;
  for (int i = 0; i < 40; ++i)
    builder.step(static_cast<std::uint64_t>(i + 1), 1000 * i, 1000 * i + 10 * (i + 1));
  for (std::uint64_t i = 1; i <= 40; ++i) builder.raw().kept.push_back({.step = i, .median_ns = 1});
  const std::vector<SlowStep> slow = slow_steps(builder.build());
  ASSERT_EQ(slow.size(), 5U);
  EXPECT_EQ(slow[0].step, 20U);
}

// Steps of `ms`, one after the other.
struct Flown {
  Flight flight{100};
  std::uint64_t step = 0, ns = 0, entries = 0;

  void steps(int count, double ms, std::uint64_t entries_each) {
    for (int i = 0; i < count; ++i) {
      const std::uint64_t begin = ns;
      ns += static_cast<std::uint64_t>(ms * 1e6);
      if (flight.wants_details()) entries += entries_each;
      flight.on_step({.step = ++step, .begin_ns = begin, .end_ns = ns}, [&] { return entries; });
    }
  }
};

// 550 entries at 100 ns are 55 us: 0.2 % of a step of 27.5 ms.
TEST(Flight, RecordsDetailsInBurstsThatCostLittle) {
  for (const auto& [ms, every] : {std::pair(28.0, 1U), {14.0, 2U}, {0.5, 55U}}) {
    Flown flown;
    flown.steps(16, ms, 550);
    EXPECT_EQ(flown.flight.every(), every);
    flown.steps(4000, ms, 550);
    EXPECT_LE(static_cast<double>(flown.entries) * 100,
              0.0021 * static_cast<double>(flown.ns) + 1e6);
  }
}

TEST(Flight, GivesRunsOfDetailedStepsAsWindows) {
  Flown flown;
  flown.steps(64, 14, 550);  // details in steps 1-16 and 33-48
  const std::vector<Window> windows = flown.flight.windows(0, flown.ns);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[0].last_step, 16U);
  EXPECT_EQ(windows[1].first_step, 33U);
  EXPECT_EQ(windows[1].past, 1U);
  EXPECT_EQ(flown.flight.windows(windows[1].begin_ns + 1, flown.ns)[0].first_step, 34U);
}

TEST(Flight, KeepsASlowStepWithItsNeighbours) {
  Flown flown;
  flown.steps(40, 10, 0);
  flown.steps(1, 29, 0);
  flown.steps(2, 10, 0);
  EXPECT_FALSE(flown.flight.take_slow());
  flown.steps(1, 31, 0);
  EXPECT_FALSE(flown.flight.take_slow());
  flown.steps(2, 10, 0);
  const auto slow = flown.flight.take_slow();
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->step, 44U);
  EXPECT_EQ(slow->first_step, 42U);
  EXPECT_EQ(slow->last_step, 46U);
  EXPECT_EQ(slow->median_ns, 10'000'000U);
  EXPECT_EQ(slow->end_ns - slow->begin_ns, 71'000'000U);
  for (int i = 0; i < 10; ++i) {  // as slow as those that are kept: no more than five
    flown.steps(1, 31, 0);
    flown.steps(9, 10, 0);
    EXPECT_EQ(flown.flight.take_slow().has_value(), i < 4) << i;
  }
}

}  // namespace
}  // namespace warpstep::profiler

#include "profiler/analysis/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/core/error.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SessionBuilder;

std::string refused(std::vector<Session> sessions) {
  try {
    sort_by_rank(sessions);
    rank_view(sessions);
  } catch (const DataError& error) {
    return error.what();
  }
  return "taken";
}

// A clock that began at another time, and runs at another speed.
struct SkewedClock {
  std::uint64_t begin_ns = 0;
  double speed = 1;
  std::uint64_t operator()(std::uint64_t true_ns) const {
    return begin_ns +
           static_cast<std::uint64_t>(std::llround(speed * static_cast<double>(true_ns)));
  }
};

// The best of some exchanges whose two ways take times of their own.
PeerClock look(const SkewedClock& here, const SkewedClock& there, std::uint64_t true_ns,
               std::mt19937& random) {
  std::lognormal_distribution<double> way(std::log(60'000.0), 0.6);
  PeerClock best{.round_trip_ns = UINT64_MAX};
  for (int i = 0; i < 16; ++i) {
    const auto out = static_cast<std::uint64_t>(way(random)),
               back = static_cast<std::uint64_t>(way(random));
    const std::uint64_t asked = here(true_ns), answered = here(true_ns + out + back);
    if (answered - asked < best.round_trip_ns)
      best = {asked + (answered - asked) / 2, there(true_ns + out), answered - asked};
    true_ns += out + back;
  }
  return best;
}

TEST(RankClockMap, FindsOffsetAndDriftWithinHalfARoundTrip) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const SkewedClock zero{random() * std::uint64_t{1000}, 1};
    const double drift = (static_cast<double>(random() % 2001) - 1000) * 1e-7;  // 100 ppm at most
    const SkewedClock rank{random() * std::uint64_t{1000}, 1 + drift};
    Session first, session;
    const std::uint64_t looks = 1 + random() % 6, apart = 10'000'000'000;
    for (std::uint64_t i = 0; i < looks; ++i)
      session.peer_clocks.push_back(look(rank, zero, i * apart, random));
    const RankClockMap map = clock_map(session, first);
    ASSERT_TRUE(map.error_ns.has_value());
    EXPECT_LT(*map.error_ns, 200'000U);
    if (looks < 2) continue;  // a single look says nothing of the drift
    for (std::uint64_t ns = 0; ns <= (looks - 1) * apart; ns += apart / 4) {
      // Where the line continues beyond its two looks, their errors grow with it.
      const auto wrong = static_cast<std::int64_t>(map(rank(ns)) - zero(ns));
      EXPECT_LE(std::abs(wrong), static_cast<std::int64_t>(3 * *map.error_ns)) << ns;
    }
  }
}

TEST(RankClockMap, BetweenTwoLooksIsWithinHalfARoundTrip) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const SkewedClock zero{5'000'000'000, 1}, rank{random() * std::uint64_t{1000}, 1 + 5e-5};
    Session first, session;
    const std::uint64_t end = 60'000'000'000;
    session.peer_clocks = {look(rank, zero, 0, random), look(rank, zero, end, random)};
    const RankClockMap map = clock_map(session, first);
    for (std::uint64_t ns = 0; ns <= end; ns += end / 16)
      EXPECT_LE(std::abs(static_cast<std::int64_t>(map(rank(ns)) - zero(ns))),
                static_cast<std::int64_t>(*map.error_ns + 60))  // and what clocks differ in a way
          << ns;
  }
}

TEST(RankClockMap, KnowsItsErrorFarFromTheLooksThatItUses) {
  // The clocks are equal; what the looks in the middle are off, a line through them would carry to
  // the ends.
  const auto look_at = [](std::uint64_t s, std::uint64_t round_trip_us, std::int64_t off_us) {
    const std::uint64_t at = 1'000'000'000 + s * 1'000'000'000;
    return PeerClock{at, at + static_cast<std::uint64_t>(1000 * off_us), 1000 * round_trip_us};
  };
  Session first, session;
  session.peer_clocks = {look_at(0, 400, 0), look_at(99, 100, 45), look_at(101, 100, -45),
                         look_at(200, 400, 0)};
  const RankClockMap map = clock_map(session, first);
  ASSERT_TRUE(map.error_ns.has_value());
  EXPECT_LE(*map.error_ns, 200'000U);
  for (const PeerClock& look : session.peer_clocks)
    EXPECT_LE(std::abs(static_cast<std::int64_t>(map(look.at_ns) - look.at_ns)),
              static_cast<std::int64_t>(*map.error_ns));
  session.peer_clocks = {look_at(99, 100, 45), look_at(101, 100, -45)};
  session.steps = {{.begin_ns = 1'000'000'000, .end_ns = 201'000'000'000}};
  EXPECT_GT(*clock_map(session, first).error_ns, 4'500'000U);
}

TEST(RankClockMap, OfOneMachineIsNone) {
  Session first, session;
  first.stamp = {{"boot", "5bf3"}};
  session.stamp = {{"boot", "5bf3"}};
  session.peer_clocks = {{1000, 5000, 10}};
  const RankClockMap map = clock_map(session, first);
  EXPECT_EQ(map(123'456), 123'456U);
  EXPECT_EQ(map.error_ns, 0U);
  session.stamp["boot"] = "another";
  EXPECT_EQ(clock_map(session, first)(1000), 5000U);
}

TEST(RankClockMap, OfOtherMachinesThatNeverAskedIsTheWallClocks) {
  Session first, session;
  first.clocks = {{.monotonic_ns = 1'000, .realtime_ns = 1'000'000}};
  session.clocks = {{.monotonic_ns = 5'000, .realtime_ns = 1'000'500}};
  const RankClockMap map = clock_map(session, first);
  EXPECT_EQ(map(5'000), 1'500U);
  EXPECT_FALSE(map.error_ns.has_value());
  EXPECT_THAT(map.how, HasSubstr("NTP"));
  session.clocks.clear();
  EXPECT_THROW(clock_map(session, first), DataError);
}

TEST(RankClockMap, MovesASessionThatStaysSound) {
  SessionBuilder builder;
  builder.step(1, 0, 1000, 300, 200, 100).step(2, 1000, 2000, 300, 200, 100, 50);
  builder.span(Kind::call, "conv", 10, 900).window(1, 2, 0, 2000).sample("cpu %", 500, 40);
  Session session = builder.build();
  Session first;
  first.clocks = {{.monotonic_ns = 1, .realtime_ns = 2}};
  const RankClockMap map{.offset_ns = 4'000'000, .drift = 1e-4, .at_ns = SessionBuilder::at(0)};
  move_to_clock(session, map, first);
  finish_session(session, "moved");  // throws unless parts add up
  EXPECT_EQ(session.steps[0].begin_ns, SessionBuilder::at(4000));
  EXPECT_EQ(session.steps[1].end_ns, SessionBuilder::at(6000.2));
  EXPECT_EQ(session.spans[0].begin_ns, SessionBuilder::at(4010) + 1);
  EXPECT_EQ(session.windows[0].begin_ns, SessionBuilder::at(4000));
  EXPECT_EQ(session.samples[0].at_ns, SessionBuilder::at(4500) + 50);
  EXPECT_EQ(session.clocks[0].realtime_ns, 2U);
}

// A rank of a job on one machine: steps of 1000 us and, in every step but the first, `slower` us
// more for data.
Session rank(int number, double slower, int steps = 12) {
  SessionBuilder builder;
  double at = 0;
  for (int step = 1; step <= steps; ++step) {
    const double more = step > 1 ? slower : 0;
    // A microsecond more every third step, so that the fast ones differ.
    const double end = at + 1000 + more + (step % 3 == number % 3 ? 1 : 0);
    builder.step(static_cast<std::uint64_t>(step), at, end, 700, 100 + more, 50);
    at = end;
  }
  Session session = builder.build();
  session.stamp = {{"rank", number}, {"boot", "5bf3"}, {"host", {{"name", "node0"}}}};
  return session;
}

TEST(Ranks, NameTheOneThatTheOthersWaitForAndWhy) {
  std::vector<Session> sessions{rank(2, 80), rank(0, 0), rank(1, 0)};
  sort_by_rank(sessions);
  const RanksView view = rank_view(sessions);
  ASSERT_EQ(view.ranks.size(), 3U);
  EXPECT_EQ(view.ranks[2].rank, 2U);
  EXPECT_EQ(view.ranks[2].slowest, 11U);
  EXPECT_NEAR(view.ranks[2].own_ns, 1'080'000, 1'001);
  EXPECT_NEAR(static_cast<double>(view.ranks[2].mean[static_cast<std::size_t>(Category::data)]),
              180'000, 1);
  EXPECT_NEAR(view.ranks[2].behind_ns, 6 * 80'000, 81'000);
  EXPECT_THAT(view.verdict, AllOf(HasSubstr("Rank 2 (node0)"), HasSubstr("11 of 11 steps"),
                                  HasSubstr("most of it data")));
  ASSERT_TRUE(view.slow);
  EXPECT_EQ(view.slow->rank, 2U);
  EXPECT_NEAR(view.slow->excess_ns, 80'000, 1'001);
  EXPECT_EQ(view.slow->part, Category::data);
  ASSERT_EQ(view.straggles.size(), 11U);
  for (const Straggle& one : view.straggles) {
    EXPECT_EQ(one.rank, 2U);
    EXPECT_EQ(one.part, Category::data);
    EXPECT_NEAR(one.excess_ns, 80'000, 1'001);
    EXPECT_NEAR(one.part_excess_ns, 80'000, 1);
  }
}

TEST(Ranks, OfAJobAreNotJudgedByStepsThatContainTheirWaits) {
  std::vector<Session> sessions{rank(0, 0), rank(1, 80)};
  for (Session& session : sessions) session.stamp["ranks"] = 2;
  const RanksView view = rank_view(sessions);
  EXPECT_FALSE(view.slow);
  EXPECT_THAT(view.verdict, HasSubstr("is not known"));
  EXPECT_THAT(view.verdict, HasSubstr("--profile spans"));
  EXPECT_TRUE(view.straggles.empty());
  for (Session& session : sessions) session.devices.emplace_back();
  EXPECT_THAT(rank_view(sessions).verdict, HasSubstr("--profile deep")) << "spans show no kernels";
}

TEST(Ranks, SaysNothingOfWhatIsNoise) {
  const std::vector<Session> even{rank(0, 0), rank(1, 0), rank(2, 0)};
  EXPECT_THAT(rank_view(even).verdict, HasSubstr("No rank keeps the others waiting"));
  EXPECT_FALSE(rank_view(even).slow);
  const std::vector<Session> below{rank(0, 0), rank(1, 19), rank(2, 0)};
  EXPECT_THAT(rank_view(below).verdict, HasSubstr("No rank"));
  const std::vector<Session> above{rank(0, 0), rank(1, 23), rank(2, 0)};
  EXPECT_THAT(rank_view(above).verdict, HasSubstr("Rank 1"));
}

// Of jobs of equal ranks whose steps vary, how many blame a rank; `slow` takes so many times as
// long.
int blamed_jobs(int jobs, int ranks, int steps, double slow, double spread, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> noise(std::log(1000.0), spread);
  int blamed = 0;
  for (int job = 0; job < jobs; ++job) {
    std::vector<Session> sessions;
    for (int number = 0; number < ranks; ++number) {
      SessionBuilder builder;
      double at = 0;
      for (int step = 1; step <= steps; ++step) {
        const double end = at + noise(random) * (number == 0 ? slow : 1);
        builder.step(static_cast<std::uint64_t>(step), at, end, 500);
        at = end;
      }
      sessions.push_back(builder.build());
      sessions.back().stamp = {{"rank", number}, {"boot", "5bf3"}};
    }
    if (rank_view(sessions).slow) ++blamed;
  }
  return blamed;
}

TEST(Ranks, AreNotBlamedForBeingSlowestByChance) {
  EXPECT_LE(blamed_jobs(300, 3, 60, 1, 0.1, 3), 15);
  EXPECT_LE(blamed_jobs(60, 64, 21, 1, 0.05, 4), 3);
  EXPECT_EQ(blamed_jobs(5, 64, 61, 1.05, 0.05, 5), 5);
}

TEST(Ranks, LeavesCommunicationOutInWhichAllWait) {
  // Both take as long, but one of them in its kernels, the other in the all-reduce.
  const auto deep = [](int number, double kernels) {
    SessionBuilder builder;
    builder.gpu().window(1, 12, 0, 12'000, true);
    for (int step = 0; step < 12; ++step) {
      const double at = 1000 * step;
      builder.step(static_cast<std::uint64_t>(step + 1), at, at + 1000, 900);
      builder.launch(at, at + 5, What::kernel, "gemm", at + 10, at + 10 + kernels);
      builder.launch(at + 6, at + 9, What::kernel, "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
                     at + 10 + kernels, at + 950);
    }
    Session session = builder.build();
    session.stamp = {{"rank", number}, {"boot", "5bf3"}};
    return session;
  };
  const std::vector<Session> sessions{deep(0, 400), deep(1, 800)};
  const RanksView view = rank_view(sessions);
  EXPECT_EQ(view.ranks[1].slowest, 11U);
  EXPECT_NEAR(view.ranks[1].own_ns - view.ranks[0].own_ns, 400'000, 1);
  EXPECT_THAT(view.verdict, AllOf(HasSubstr("Rank 1"), HasSubstr("most of it kernel")));
}

// In a ring a rank sends n - 1 of n parts of its gradients, and those of the sums again, unless
// each rank needs its share alone.
TEST(Ranks, CountTheBytesThatASumSends) {
  const auto job = [](int number, const char* attributes) {
    SessionBuilder builder;
    for (int step = 0; step < 4; ++step) {
      const double at = 1000 * step;
      builder.step(static_cast<std::uint64_t>(step + 1), at, at + 1000, 900);
      builder.span(Kind::call, "bucket1/all_reduce", at + 100, at + 300);
    }
    Session session = builder.window(1, 4, 0, 4000).build();
    session.stamp = {{"rank", number}, {"boot", "5bf3"}};
    session.program["calls"].push_back({{"title", "bucket1/all_reduce"},
                                        {"op", "all_reduce"},
                                        {"attributes", attributes},
                                        {"bytes", 2e6}});
    return session;
  };
  for (const auto& [attributes, expected] :
       {std::pair{"mean of 2 ranks", 5e9}, std::pair{"mean of 2 ranks, each its share", 2.5e9}}) {
    const std::vector<Session> sessions{job(0, attributes), job(1, attributes)};
    const RanksView view = rank_view(sessions);
    ASSERT_EQ(view.exchanges.size(), 1U);
    EXPECT_EQ(view.exchanges[0].bytes, 1e6);
    EXPECT_NEAR(view.exchanges[0].bytes_per_second, expected, 1e-3 * expected) << attributes;
  }
  std::vector<Session> of_four{job(0, "mean of 4 ranks"), job(1, "mean of 4 ranks")};
  for (Session& session : of_four) session.stamp["ranks"] = 4;
  const RanksView view = rank_view(of_four);
  EXPECT_NEAR(view.exchanges[0].bytes_per_second, 2 * 0.75 * 1e6 / 200e-6, 1);
  EXPECT_EQ(view.exchanges[0].mean_ns, 200e3);
  EXPECT_THAT(view.verdict, HasSubstr("2 of 4 ranks"));
}

TEST(Ranks, AreInTheOrderGivenWhereNoneIsTold) {
  std::vector<Session> sessions{rank(1, 0), rank(0, 90)};
  for (Session& session : sessions) session.stamp.erase("rank");
  sort_by_rank(sessions);
  EXPECT_THAT(rank_view(sessions).verdict, HasSubstr("Rank 1"));
}

TEST(Ranks, RefusesWhatIsNoJob) {
  EXPECT_THAT(refused({rank(0, 0)}), HasSubstr("at least two"));
  EXPECT_THAT(refused({rank(0, 0), rank(0, 0)}), HasSubstr("two of the sessions are rank 0's"));
  Session untold = rank(1, 0);
  untold.stamp.erase("rank");
  EXPECT_THAT(refused({rank(0, 0), untold}), HasSubstr("1 of 2 sessions record their rank"));
  EXPECT_THAT(refused({rank(2, 0), rank(1, 0)}), HasSubstr("rank 0's run is missing"));
  Session later = rank(1, 0);
  for (Step& step : later.steps) step.step += 100;
  EXPECT_THAT(refused({rank(0, 0), later}), HasSubstr("0 steps in common"));
}

TEST(Ranks, TablesHaveEveryRankAndTheWorstStepsFirst) {
  Session odd = rank(1, 20);
  odd.steps[5].end_ns += 300'000;
  odd.steps[5].cpu_ns += 300'000;
  for (std::size_t i = 6; i < odd.steps.size(); ++i) {
    odd.steps[i].begin_ns += 300'000;
    odd.steps[i].end_ns += 300'000;
  }
  const std::vector<Session> sessions{rank(0, 0), odd};
  const RanksView view = rank_view(sessions);
  const Table ranks = ranks_table(view), straggles = straggles_table(view);
  ASSERT_EQ(ranks.rows.size(), 2U);
  ASSERT_EQ(ranks.rows[0].size(), ranks.columns.size());
  EXPECT_EQ(std::get<std::string>(ranks.rows[1].back()), "the same machine's clock");
  EXPECT_EQ(std::get<std::int64_t>(straggles.rows[0][0]), 6);
  EXPECT_EQ(std::get<std::string>(straggles.rows[0][4]), "cpu");
}

}  // namespace
}  // namespace warpstep::profiler

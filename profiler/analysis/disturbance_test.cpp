#include "profiler/analysis/disturbance.h"

#include <gmock/gmock.h>

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

Session sampled(double cpu, double own, double mhz = 0) {
  testing::SessionBuilder builder;
  builder.step(1, 0, 1000);
  Session& session = builder.raw();
  session.stamp["cpu"]["cores"] = 4;
  for (const auto& [name, value] : {std::pair{"cpu %", cpu}, std::pair{"process cpu %", own},
                                    std::pair{"gpu 0 sm clock MHz", mhz}}) {
    session.names.push_back({name, Kind::counter});
    const auto id = static_cast<std::uint32_t>(session.names.size() - 1);
    for (const std::uint64_t at_ns : {session.steps[0].begin_ns, session.steps[0].end_ns})
      session.samples.push_back({.at_ns = at_ns, .name = id, .value = value});
    // After the steps: an evaluation, which is not looked at.
    session.samples.push_back({.at_ns = session.steps[0].end_ns + 1000, .name = id, .value = 0});
  }
  return builder.build();
}

TEST(Disturbance, IsWhatOtherProgramsUseBeyondIdleCores) {
  const Disturbance beside = disturbance_of(sampled(50, 100));  // another program, two cores idle
  EXPECT_DOUBLE_EQ(beside.others, 1);
  EXPECT_DOUBLE_EQ(beside.lost, 0);
  const Disturbance among = disturbance_of(sampled(95, 340));  // 0.4 cores of others, 0.2 idle
  EXPECT_NEAR(among.lost, 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(disturbance_of(sampled(100, 100)).lost, 3) << "three cores";
  EXPECT_DOUBLE_EQ(disturbance_of(Session{}).lost, 0);
}

// Two ranks on two cores.
TEST(Disturbance, IsNoneOfTheJobsOtherRanks) {
  testing::SessionBuilder builder;
  builder.raw().stamp = {{"cpu", {{"cores", 4}}}, {"affinity", "0-1"}};
  builder.step(1, 0, 1000)
      .sample("cpu 0 %", 1000, 100)
      .sample("cpu 1 %", 1000, 100)
      .sample("cpu 2 %", 1000, 100)  // where the job may not run
      .sample("cpu %", 1000, 75)
      .sample("process cpu %", 1000, 100)
      .sample("siblings cpu %", 1000, 95);
  const Disturbance found = disturbance_of(builder.build());
  EXPECT_DOUBLE_EQ(found.cores, 2);
  EXPECT_NEAR(found.others, 0.05, 1e-9);
  EXPECT_NEAR(found.lost, 0.05, 1e-9);
}

TEST(Disturbance, IsWhatTheHypervisorGivesAway) {
  testing::SessionBuilder builder;
  builder.raw().stamp["cpu"]["cores"] = 2;
  builder.step(1, 0, 1000)
      .sample("cpu %", 1000, 100)
      .sample("process cpu %", 1000, 150)
      .sample("stolen cpu %", 1000, 50);
  const Disturbance found = disturbance_of(builder.build());
  EXPECT_NEAR(found.others, 0, 1e-9);
  EXPECT_NEAR(found.stolen, 0.5, 1e-9);
  EXPECT_NEAR(found.lost, 0.5, 1e-9);
}

TEST(Disturbance, IsAlsoALowerClock) {
  EXPECT_THAT(
      lost_shares({disturbance_of(sampled(0, 0, 1980)), disturbance_of(sampled(0, 0, 1485))}),
      ElementsAre(DoubleEq(0), DoubleNear(0.25, 1e-9)));
}

TEST(Disturbance, LeavesOutAClockBetweenSteps) {
  testing::SessionBuilder builder;
  builder.gpu().step(1, 0, 1000).step(2, 3000, 4000);
  for (const auto& [at, mhz] : {std::pair(0.0, 1980.0), {1000, 1980}, {3000, 345}, {4000, 1980}})
    builder.sample("gpu 0 sm clock MHz", at, mhz);
  EXPECT_THAT(disturbance_of(builder.build()).clocks_mhz, ElementsAre(1980));
}

TEST(Disturbance, IsAClockOfTheRunsOwnGpus) {
  const auto run = [](std::uint32_t id, const char* metric, double mhz) {
    testing::SessionBuilder builder;
    builder.gpu().step(1, 0, 1000).sample(metric, 10, mhz).sample("gpu 7 sm clock MHz", 10, 345);
    builder.raw().devices[0].id = id;
    return disturbance_of(builder.build());
  };
  const Disturbance first = run(0, "gpu 0 sm clock MHz", 1980),
                    second = run(1, "gpu 1 sm clock MHz", 1485), third = run(2, "none", 0);
  EXPECT_THAT(first.clocks_mhz, ElementsAre(1980)) << "another GPU's clock is none of the run's";
  EXPECT_THAT(lost_shares({first, second, third}),
              ElementsAre(DoubleEq(0), DoubleNear(0.25, 1e-9), DoubleEq(0)));
}

}  // namespace
}  // namespace warpstep::profiler

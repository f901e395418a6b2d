#include "profiler/analysis/energy.h"

#include <gtest/gtest.h>

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

// Times of the builder are in us. The first of three steps warms up and is not counted.
SessionBuilder three_steps() {
  SessionBuilder builder;
  builder.step(1, 0, 1e6).step(2, 1e6, 2e6).step(3, 2e6, 3e6);
  return builder;
}

TEST(Energy, IntegratesPowerOverTheCountedSteps) {
  SessionBuilder builder = three_steps();
  for (const auto& [at, watts] : {std::pair{0.0, 900.0}, {1.5e6, 100.0}, {2.0e6, 200.0}})
    builder.sample("gpu 0 power W", at, watts);
  const Session session = builder.build();
  const std::vector<EnergyRow> rows = energy_per_step(session);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].source, "gpu 0");
  // From 366.7 W to 100 W in half a second, to 200 W in another one, then 200 W for a second.
  const double joules = 0.5 * (100 + 800.0 / 3 + 100) / 2 + 0.5 * 150 + 200;
  EXPECT_NEAR(rows[0].joules, joules / 2, 1e-6);
  EXPECT_NEAR(rows[0].watts, joules / 2, 1e-6);
}

TEST(Energy, OfAnInstanceIsOfItsWholeGpu) {
  SessionBuilder builder = three_steps();
  builder.gpu().sample("gpu 0 power W", 0, 300).sample("cpu power W", 0, 100);
  builder.raw().devices[0].name = builder.name(Kind::range, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  const std::vector<EnergyRow> rows = energy_per_step(builder.build());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].source, "gpu 0, all of its instances");
  EXPECT_EQ(rows[1].source, "cpu");
}

TEST(Energy, IsNotKnownWithoutAPower) {
  SessionBuilder builder = three_steps();
  builder.sample("cpu %", 1e6, 50).sample("cpu power W", 1e6, 0);
  EXPECT_TRUE(energy_per_step(builder.build()).empty());
  EXPECT_TRUE(energy_per_step(Session{}).empty());
}

}  // namespace
}  // namespace warpstep::profiler

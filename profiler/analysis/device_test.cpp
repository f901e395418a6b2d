#include "profiler/analysis/device.h"

#include <gtest/gtest.h>

#include "profiler/analysis/testing_goldens.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

TEST(DeviceMetrics, AgreesWithTorchOnFourSteps) {
  const std::vector<DeviceMetrics> all = device_metrics(testing::four_steps());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "NVIDIA H200");
  EXPECT_DOUBLE_EQ(all[0].utilization, 1200.0 / 3900);
  EXPECT_NEAR(all[0].sm_efficiency, 0.20513, 1e-5);
  EXPECT_NEAR(all[0].occupancy, 0.37333, 1e-5);
  EXPECT_NEAR(all[0].tensor_core_share, 2.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(all[0].copy_share, 160.0 / 3900);
  EXPECT_EQ(all[0].bucket_ns, 100'000U);
  ASSERT_EQ(all[0].timeline.size(), 39U);
  EXPECT_DOUBLE_EQ(all[0].timeline[3], 0.6);
  EXPECT_DOUBLE_EQ(all[0].timeline[4], 1.0);
}

TEST(DeviceMetrics, AgreesWithTorchOnTheSmallestTrace) {
  const std::vector<DeviceMetrics> all = device_metrics(testing::smallest_trace());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_NEAR(all[0].utilization, 0.2222, 1e-4);
  EXPECT_NEAR(all[0].sm_efficiency, 0.1111, 1e-4);
  EXPECT_DOUBLE_EQ(all[0].occupancy, 0.0625);  // torch has 6 %, rounded
  EXPECT_DOUBLE_EQ(all[0].tensor_core_share, 1);
}

TEST(DeviceMetrics, KernelsSideBySideFillAMultiprocessorOnlyOnce) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  for (const double begin : {0.0, 25.0, 25.0}) {
    builder.launch(0, 0, What::kernel, "k", begin, 50);
    builder.last_activity().grid = {66, 1, 1};
    builder.last_activity().block = {256, 1, 1};
  }
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_DOUBLE_EQ(metrics.utilization, 0.5);
  EXPECT_DOUBLE_EQ(metrics.sm_efficiency, 0.25 * 0.5 + 0.25);  // 1.5 blocks count as 1
}

TEST(DeviceMetrics, TellsLateLaunchesFromOtherGaps) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).step(2, 100, 200).window(1, 2, 0, 200, true);
  builder.launch(0, 5, What::kernel, "a", 10, 20);
  builder.launch(6, 8, What::kernel, "b", 30, 40);      // launched in time: 10 us
  builder.launch(60, 65, What::kernel, "c", 70, 80);    // 30 us after the device had run dry
  builder.launch(80, 81, What::kernel, "d", 75, 80);    // overlaps
  builder.launch(90, 91, What::kernel, "e", 120, 130);  // over the boundary of steps
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_EQ(metrics.launch_gap_ns, 70'000U);
  EXPECT_EQ(metrics.other_gap_ns, 10'000U);
}

TEST(DeviceMetrics, LeavesOutTheTimeBetweenWindows) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .step(2, 100, 9100)
      .step(3, 9100, 9200)
      .window(1, 1, 0, 100, true)
      .window(3, 3, 9100, 9200, true)
      .launch(0, 1, What::kernel, "k", 50, 150)
      .launch(0, 1, What::kernel, "k", 9000, 9150);
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_DOUBLE_EQ(metrics.utilization, 0.5);
  EXPECT_EQ(metrics.bucket_ns, 10'000U);
  ASSERT_EQ(metrics.timeline.size(), 20U);
  EXPECT_DOUBLE_EQ(metrics.timeline[4], 0);
  EXPECT_DOUBLE_EQ(metrics.timeline[5], 1);
  EXPECT_DOUBLE_EQ(metrics.timeline[14], 1);
  EXPECT_DOUBLE_EQ(metrics.timeline[15], 0);
}

TEST(DeviceMetrics, OfAHostCountsCalls) {
  SessionBuilder builder;
  builder.step(1, 0, 100)
      .window(1, 1, 0, 100)
      .span(Kind::call, "conv1", 10, 40)
      .span(Kind::call, "fc", 50, 60);
  builder.raw().stamp = {{"host", {{"cpu", {{"model", "Xeon"}}}}}};
  const std::vector<DeviceMetrics> all = device_metrics(builder.build());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "Xeon");
  EXPECT_DOUBLE_EQ(all[0].utilization, 0.4);
  EXPECT_EQ(all[0].sm_efficiency, 0);
  EXPECT_EQ(all[0].other_gap_ns, 10'000U);
}

TEST(DeviceMetrics, OfNothingIsZero) {
  EXPECT_EQ(device_metrics(Session{})[0].utilization, 0);
  SessionBuilder builder;
  builder.gpu().step(1, 10, 10).window(1, 1, 0, 20, true).launch(0, 1, What::kernel, "k", 0, 20);
  EXPECT_EQ(device_metrics(builder.build())[0].utilization, 0);
}

}  // namespace
}  // namespace warpstep::profiler

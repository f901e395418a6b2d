#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SessionBuilder;

TEST(DeviceFindings, NoneForAStepThatIsAllKernels) {
  EXPECT_THAT(Case().findings(), IsEmpty());
}

TEST(DeviceFindings, ExposedCopies) {
  Case c;
  c.part(Category::copy) = 50'000;
  EXPECT_FALSE(c.finding("copies-exposed"));
  c.part(Category::copy) = 50'001;
  ASSERT_TRUE(c.finding("copies-exposed"));
  EXPECT_EQ(c.finding("copies-exposed")->flag, "--tier resident");
  EXPECT_THAT(c.finding("copies-exposed")->evidence, HasSubstr("50.0 us of 1.00 ms a step (5.0%)"));
  EXPECT_DOUBLE_EQ(c.finding("copies-exposed")->gain_ns, 50'001);
  c.options()["normalize"] = "cpu";
  EXPECT_EQ(c.finding("copies-exposed")->flag, "--normalize device");
  EXPECT_DOUBLE_EQ(c.finding("copies-exposed")->gain_ns, 0.75 * 50'001);
  c.options()["normalize"] = "device";
  c.builder.raw().loader["tier"] = "resident";  // is so already
  EXPECT_EQ(c.finding("copies-exposed")->flag, "");
}

void add_copies(SessionBuilder& builder, double us, std::uint8_t kind, std::uint8_t from,
                std::uint8_t to) {
  for (int i = 0; i < 10; ++i) {
    builder.launch(1000 * i, 1000 * i + 1, What::copy, "copy", 1000 * i + 1, 1000 * i + 1 + us);
    builder.last_activity().copy_kind = kind;
    builder.last_activity().source_memory = from;
    builder.last_activity().target_memory = to;
  }
}

TEST(DeviceFindings, PageableCopies) {
  Case at, above, down, pinned;
  add_copies(at.builder, 10, 1, 1, 3);
  EXPECT_FALSE(at.finding("pageable-copies"));
  add_copies(above.builder, 10.1, 1, 1, 3);
  ASSERT_TRUE(above.finding("pageable-copies"));
  EXPECT_DOUBLE_EQ(above.finding("pageable-copies")->gain_ns, 5050);
  EXPECT_THAT(above.finding("pageable-copies")->evidence, HasSubstr("in 10 copies"));
  add_copies(down.builder, 10.1, 2, 3, 1);
  EXPECT_TRUE(down.finding("pageable-copies"));
  add_copies(pinned.builder, 500, 1, 2, 3);
  EXPECT_FALSE(pinned.finding("pageable-copies"));
}

TEST(DeviceFindings, LaunchBound) {
  Case c;
  c.analysis.devices[0].launch_gap_ns = 1'000'000;  // 10 steps: 100 us each
  EXPECT_FALSE(c.finding("launch-bound"));
  c.analysis.devices[0].launch_gap_ns = 1'000'100;
  ASSERT_TRUE(c.finding("launch-bound"));
  EXPECT_EQ(c.finding("launch-bound")->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 50'005);
  c.options()["no_graph"] = true;
  EXPECT_EQ(c.finding("launch-bound")->flag, "");
  EXPECT_EQ(c.finding("launch-bound")->advice, "leave out --no-graph: a step is one launch then");
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 100'010);
}

TEST(DeviceFindings, SyncBoundNamesTheRange) {
  Case c;
  c.part(Category::sync) = 50'000;
  EXPECT_FALSE(c.finding("sync-bound"));
  c.part(Category::sync) = 60'000;
  ASSERT_TRUE(c.finding("sync-bound"));
  EXPECT_THAT(c.finding("sync-bound")->text, HasSubstr("in each step"));
  EXPECT_EQ(c.finding("sync-bound")->flag, "");
  c.builder.span(Kind::range, "step", 0, 1000)
      .span(Kind::range, "observers", 800, 900)
      .span(Kind::sync, "cudaStreamSynchronize", 820, 865)
      .span(Kind::sync, "cudaStreamSynchronize", 10, 25);
  const Finding finding = *c.finding("sync-bound");
  EXPECT_THAT(finding.text, HasSubstr("\"observers\""));
  EXPECT_THAT(finding.evidence, HasSubstr("75% of it there"));
  EXPECT_EQ(finding.flag, "--log-every 100");
  EXPECT_DOUBLE_EQ(finding.gain_ns, 45'000);
  c.options()["log_every"] = 1000;  // is seldom enough
  EXPECT_EQ(c.finding("sync-bound")->flag, "");
}

TEST(DeviceFindings, SyncBoundFromTheDriversRecords) {
  Case c;
  c.part(Category::sync) = 60'000;
  c.builder.span(Kind::range, "read back", 100, 200)
      .activity({.start_ns = SessionBuilder::at(120),
                 .end_ns = SessionBuilder::at(180),
                 .stream = 4242,
                 .what = What::sync},
                Kind::host_api, "cudaEventSynchronize");
  EXPECT_THAT(c.finding("sync-bound")->text, HasSubstr("\"read back\""));
}

TEST(DeviceFindings, TinyBatch) {
  Case c;
  c.part(Category::runtime) = 200'000;
  c.part(Category::cpu) = 200'000;
  c.part(Category::other) = 99'999;
  EXPECT_FALSE(c.finding("tiny-batch"));
  c.part(Category::other) = 100'000;
  ASSERT_TRUE(c.finding("tiny-batch"));
  EXPECT_EQ(c.finding("tiny-batch")->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_ns, 250'000);
  c.analysis.devices[0].launch_gap_ns = 2'000'000;  // told once
  EXPECT_FALSE(c.finding("tiny-batch"));
  EXPECT_TRUE(c.finding("launch-bound"));
}

TEST(DeviceFindings, LowUtilization) {
  Case c;
  c.analysis.devices[0].utilization = 0.5;
  EXPECT_FALSE(c.finding("low-utilization"));
  c.analysis.devices[0].utilization = 0.499;
  ASSERT_TRUE(c.finding("low-utilization"));
  EXPECT_EQ(c.finding("low-utilization")->flag, "--batch 256");
  c.part(Category::data) = 400'000;
  EXPECT_EQ(c.finding("low-utilization")->flag, "");
  EXPECT_THAT(c.finding("low-utilization")->advice, HasSubstr("loader"));
}

TEST(DeviceFindings, Communication) {
  Case c;
  c.part(Category::communication) = 100'000;
  EXPECT_FALSE(c.finding("communication"));
  c.part(Category::communication) = 100'001;
  EXPECT_TRUE(c.finding("communication"));
}

TEST(DeviceFindings, GainNothingWhileTheStepWaitsForData) {
  Case c;
  c.part(Category::copy) = 60'000;
  c.analysis.devices[0].launch_gap_ns = 2'000'000;
  c.analysis.stall.is_stalled = true;
  for (const Finding& finding : c.findings()) EXPECT_EQ(finding.gain_ns, 0) << finding.key;
}

// On the host it is what does not shrink with the batch: the optimiser, and the host between calls.
TEST(DeviceFindings, TinyBatchOnTheHost) {
  Case at(false), above(false), update(false);
  at.part(Category::cpu) = 390'000;
  EXPECT_FALSE(at.finding("tiny-batch"));
  above.part(Category::cpu) = 410'000;
  ASSERT_TRUE(above.finding("tiny-batch"));
  EXPECT_DOUBLE_EQ(above.finding("tiny-batch")->gain_ns, 205'000);
  update.analysis.work.calls.push_back({.title = "update_all", .phase = "update", .ns = 410'000});
  EXPECT_TRUE(update.finding("tiny-batch"));
}

TEST(DeviceFindings, AreOfDevicesAlone) {
  Case c(false);
  c.part(Category::copy) = c.part(Category::sync) = 600'000;
  c.analysis.devices[0].utilization = 0.1;
  c.analysis.devices[0].launch_gap_ns = 2'000'000;
  EXPECT_THAT(c.findings(), IsEmpty());
}

}  // namespace
}  // namespace warpstep::profiler

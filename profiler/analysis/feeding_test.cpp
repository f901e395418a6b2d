#include "profiler/analysis/feeding.h"

#include <gmock/gmock.h>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;
using testing::SessionBuilder;

// A step of 1 ms whose kernel ends after 500 us, and a copier that has the next batch in device
// memory after 800 us; then it waits for the buffer of the one after that.
SessionBuilder fed() {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 1000, 500, 400)
      .window(1, 1, 0, 1000, true)
      .thread(77, "copier")
      .thread(78, "copier")  // of an evaluation's batches
      .launch(0, 1, What::kernel, "k", 2, 500)
      .span(Kind::wait, "wait for data", 100, 950)
      .span(Kind::sync, "wait for a buffer", 50, 560, 1)
      .span(Kind::idle, "wait for a batch", 560, 600, 1)
      .span(Kind::copy, "copy to the device", 600, 800, 1)
      .span(Kind::sync, "wait for a buffer", 800, 2000, 1)
      .span(Kind::copy, "copy to the device", -500, -400, 2);
  return builder;
}

TEST(FeedWaits, AreWhatTheCopierDidWhileTheDeviceIdled) {
  SessionBuilder builder = fed();
  const FeedWaits waits = feed_waits(builder.build());
  EXPECT_DOUBLE_EQ(waits.buffer_ns, 60e3);
  EXPECT_DOUBLE_EQ(waits.batch_ns, 40e3);
  EXPECT_DOUBLE_EQ(waits.copy_ns, 200e3);
  EXPECT_DOUBLE_EQ(waits.late_ns, 150e3);
}

TEST(FeedWaits, ThreadWokeUpAfterTheNextBatchWasCopiedToo) {
  SessionBuilder builder = fed();
  builder.span(Kind::copy, "copy to the device", 900, 920, 1);
  EXPECT_DOUBLE_EQ(feed_waits(builder.build()).late_ns, 150e3);
}

TEST(FeedWaits, AreNoneWithoutACopierOrADevice) {
  SessionBuilder builder = fed();
  std::erase_if(builder.raw().spans, [](const Span& span) { return span.thread != 0; });
  EXPECT_EQ(feed_waits(builder.build()).all_ns(), 0);
  builder = fed();
  builder.raw().devices.clear();
  builder.raw().activities.clear();
  EXPECT_EQ(feed_waits(builder.build()).all_ns(), 0);
}

// The wait that the finding names is the breakdown's, as the two are in one report.
TEST(FeedWaits, TheLoadersWaitIsTheBreakdowns) {
  SessionBuilder builder = fed();
  const Analysis analysis = analyse(builder.build());
  const double data = analysis.breakdown.mean[static_cast<std::size_t>(Category::data)];
  EXPECT_DOUBLE_EQ(data, 450e3);
  EXPECT_DOUBLE_EQ(analysis.loader.wait_ns, data);
  EXPECT_DOUBLE_EQ(analysis.stall.wait_ns, data);
  EXPECT_DOUBLE_EQ(analysis.feed.all_ns(), data);
}

// A resident set: a batch takes its worker 20 us.
TEST(FeedWaits, AThreadThatWakesUpLateIsNotTheLoaders) {
  Case c;
  c.builder.raw().loader = {{"batch", 128}, {"tier", "resident"}, {"cores", 16}};
  c.analysis.loader = {.workers = 1, .prefetch = 3, .cores = 16, .batch = 128};
  c.analysis.loader.work_ns = c.analysis.loader.cpu_ns = 20e3;
  c.analysis.loader.step_ns = 950e3;
  c.analysis.loader.wait_ns = 50e3;
  c.analysis.stall = {.is_stalled = true, .wait_ns = 50e3, .step_ns = 1e6};
  EXPECT_THAT(c.finding("data-wait")->text, HasSubstr("waits for the loader"));
  EXPECT_THAT(c.finding("data-wait")->advice, HasSubstr("the workers have enough time"));
  c.analysis.feed = {.buffer_ns = 20e3, .copy_ns = 10e3, .late_ns = 20e3};
  EXPECT_THAT(c.finding("data-wait")->text, HasSubstr("a thread of the host has woken up"));
  EXPECT_THAT(c.finding("data-wait")->evidence, HasSubstr("for 20.0 % the batch was being copied"));
  EXPECT_THAT(c.finding("data-wait")->advice, HasSubstr("--steps-per-launch 8"));
  c.options()["steps_per_launch"] = 4;
  EXPECT_THAT(c.finding("data-wait")->advice, HasSubstr("--pin-cpus auto"));
  c.analysis.feed = {.buffer_ns = 10e3, .copy_ns = 40e3};
  EXPECT_THAT(c.finding("data-wait")->advice, HasSubstr("copies of batches"));
}

}  // namespace
}  // namespace warpstep::profiler

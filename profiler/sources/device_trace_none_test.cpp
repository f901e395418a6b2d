// Builds without CUPTI's headers: the GPU's sources refuse, and name what to install.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {
namespace {

TEST(DeviceTraceNone, Refuses) {
  const OpenedTrace opened = open_device_trace();
  EXPECT_EQ(opened.trace, nullptr);
  EXPECT_EQ(opened.why,
            "The GPU's activities are not recorded: this program was built without CUPTI 13.0's "
            "headers; install cuda-cupti-dev-13-0 and build it again.");
  EXPECT_TRUE(query_devices().empty());
}

TEST(DeviceTraceNone, SamplesNoCounters) {
  const OpenedPmSampling opened = open_pm_sampling(0);
  EXPECT_EQ(opened.sampling, nullptr);
  EXPECT_EQ(opened.why,
            "The GPU's counters are not sampled: this program was built without CUPTI 13.0's "
            "headers; install cuda-cupti-dev-13-0 and build it again.");
}

TEST(DeviceTraceNone, ReplaysNoDump) {
  try {
    replay_device_trace("/nowhere/there.dump");
    FAIL() << "read a dump that is not there";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("/nowhere/there.dump: cannot be read: this "
                                                  "program was built without CUPTI 13.0's"));
  }
}

}  // namespace
}  // namespace warpstep::profiler

// With CUPTI's headers or without: the counters are sampled, or a sentence says why not.
#include "profiler/sources/device_trace.h"

#include <gtest/gtest.h>

namespace warpstep::profiler {
namespace {

TEST(PmSampling, IsOpenedOrSaysWhyNot) {
  const OpenedPmSampling opened = open_pm_sampling(0);
  if (opened.sampling) {
    EXPECT_NE(opened.sampling->what(), "");
    opened.sampling->begin();
    EXPECT_TRUE(opened.sampling->end(0, 0).samples.empty());
  } else {
    EXPECT_TRUE(opened.why.starts_with("The GPU's counters are not sampled: ")) << opened.why;
    EXPECT_TRUE(opened.why.ends_with('.')) << opened.why;
  }
}

}  // namespace
}  // namespace warpstep::profiler

// With CUPTI's headers or without: there is a trace, or a sentence.
#include "profiler/sources/device_trace.h"

#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

TEST(DeviceTrace, IsOpenedOrSaysWhyNot) {
  const OpenedTrace opened = open_device_trace();
  if (opened.trace) {
    opened.trace->begin();
    EXPECT_GE(opened.trace->end().clocks.size(), 2U);
    EXPECT_FALSE(query_devices().empty());
  } else {
    EXPECT_TRUE(opened.why.starts_with("The GPU's activities are not recorded: ")) << opened.why;
    EXPECT_TRUE(opened.why.ends_with('.')) << opened.why;
  }
}

TEST(DeviceTrace, ADumpThatIsNotThere) {
  EXPECT_THROW(replay_device_trace("/nowhere/there.dump"), DataError);
}

}  // namespace
}  // namespace warpstep::profiler

#include "engine/core/run_delay.h"

#include <gtest/gtest.h>

#include <thread>

namespace warpstep {
namespace {

TEST(RunDelay, ParsesTheKernelsText) {
  const auto time = parse_schedstat("700 300 5\n");
  ASSERT_TRUE(time);
  EXPECT_EQ(time->on_cpu_ns, 700U);
  EXPECT_EQ(time->delay_ns, 300U);
  EXPECT_FALSE(parse_schedstat("0 0 0\n"));  // a kernel that does not count
  EXPECT_FALSE(parse_schedstat("7 x 5\n"));
  EXPECT_FALSE(parse_schedstat("7 3"));
  EXPECT_FALSE(parse_schedstat(""));
}

TEST(RunDelay, IsOfTheThreadThatAsks) {
  RunDelay delay;
  EXPECT_FALSE(delay.since_last());
  if (!delay.since_last()) GTEST_SKIP() << "this kernel has no schedstat";
  std::thread([&] { EXPECT_FALSE(delay.since_last()); }).join();
  EXPECT_FALSE(delay.since_last());
  EXPECT_TRUE(delay.since_last());
}

}  // namespace
}  // namespace warpstep

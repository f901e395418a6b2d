#include "data/asked.h"

#include <gtest/gtest.h>

namespace warpstep::data {
namespace {

TEST(Asked, OnceForSetsThatMemoryHolds) {
  const Asked asked(3, 100, 100);
  EXPECT_TRUE(asked.is_first(1));
  EXPECT_FALSE(asked.is_first(1));
  EXPECT_TRUE(asked.is_first(2));
  EXPECT_TRUE(asked.is_first(0));
  EXPECT_FALSE(asked.is_first(2));
}

TEST(Asked, AlwaysForLargerOnes) {
  const Asked asked(3, 101, 100);
  EXPECT_TRUE(asked.is_first(1));
  EXPECT_TRUE(asked.is_first(1));
}

}  // namespace
}  // namespace warpstep::data

#include "engine/core/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace warpstep {
namespace {

TEST(Scratch, KeepsItsMemoryUntilMoreIsWanted) {
  Scratch scratch;
  EXPECT_TRUE(scratch.floats(0).empty());
  const std::span<float> small = scratch.floats(1000);
  ASSERT_EQ(small.size(), 1000U);
  std::ranges::fill(small, 3.0F);
  EXPECT_EQ(scratch.floats(10).data(), small.data());
  constexpr std::size_t many = (std::size_t{5} << 20) + 3;  // more than a huge page
  const std::span<float> large = scratch.floats(many);
  ASSERT_EQ(large.size(), many);
  std::ranges::fill(large, 4.0F);
  EXPECT_EQ(large.back(), 4.0F);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data()) % (std::size_t{2} << 20), 0U);
  EXPECT_EQ(scratch.floats(many - 1).data(), large.data());
}

}  // namespace
}  // namespace warpstep

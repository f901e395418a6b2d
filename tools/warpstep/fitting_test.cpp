#include "tools/warpstep/fitting.h"

#include <gtest/gtest.h>

#include <cmath>

namespace warpstep::tools {
namespace {

TEST(LargestBatch, IsTheLastThatFits) {
  for (const std::uint64_t per_image : {1, 7, 1000, 1'000'000})
    for (const std::int64_t answer : {1, 2, 3, 127, 128, 4096, 99'998}) {
      const std::uint64_t fixed = 5'000'000;
      const auto bytes = [&](std::int64_t batch) {
        return fixed + per_image * static_cast<std::uint64_t>(batch);
      };
      EXPECT_EQ(largest_batch_that_fits(100'000, bytes, bytes(answer)), answer);
      EXPECT_EQ(largest_batch_that_fits(100'000, bytes, bytes(answer + 1) - 1), answer);
    }
}

TEST(LargestBatch, IsNoneWhereNothingFits) {
  const auto bytes = [](std::int64_t batch) { return 1000 + static_cast<std::uint64_t>(batch); };
  EXPECT_EQ(largest_batch_that_fits(64, bytes, 1000), 0);
  EXPECT_EQ(largest_batch_that_fits(64, bytes, 0), 0);
  EXPECT_EQ(largest_batch_that_fits(1, bytes, 1000), 0);
}

// Planning a large model takes half a second: what grows in a straight line is asked a few times,
// and what does not is still found.
TEST(LargestBatch, IsFoundInFewQuestions) {
  int asked = 0;
  const auto line = [&](std::int64_t batch) {
    ++asked;
    return 90'000'000 + 123'457 * static_cast<std::uint64_t>(batch) +
           static_cast<std::uint64_t>(batch % 7) * 64;
  };
  const std::int64_t found = largest_batch_that_fits(1 << 20, line, 2'000'000'000);
  EXPECT_LE(asked, 8);
  EXPECT_LE(line(found), 2'000'000'000U);
  EXPECT_GT(line(found + 1), 2'000'000'000U);
  asked = 0;
  const auto curve = [&](std::int64_t batch) {
    ++asked;
    return static_cast<std::uint64_t>(std::pow(static_cast<double>(batch), 3));
  };
  EXPECT_EQ(largest_batch_that_fits(1 << 20, curve, 1'000'000), 100);
  EXPECT_LE(asked, 60);
}

TEST(Report, FitsUpToAThirdOfTheBudget) {
  EXPECT_TRUE(report_fits(100, 300));
  EXPECT_FALSE(report_fits(101, 300));
  EXPECT_FALSE(report_fits(UINT64_MAX, UINT64_MAX)) << "no product that wraps around";
}

TEST(FreeBytes, AreThoseOfTheMachineUnlessATestSaysOtherwise) {
  const auto backend = open_backend("ref");
  EXPECT_GT(free_bytes(*backend), std::uint64_t{1} << 20);
  EXPECT_LT(free_bytes(*backend), std::uint64_t{1} << 50);
  EXPECT_LT(free_bytes(*backend, 8), free_bytes(*backend) / 2);
  ::setenv("WARPSTEP_FREE_BYTES", "12345", 1);
  EXPECT_EQ(free_bytes(*backend), 12345U);
  ::unsetenv("WARPSTEP_FREE_BYTES");
}

}  // namespace
}  // namespace warpstep::tools

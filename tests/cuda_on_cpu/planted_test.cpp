// Faults in kernels that the emulator itself finds; the program `planted` runs those that only
// sanitizers find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/cuda_on_cpu/planted.h"
#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Planted : public testing::TestWithParam<std::uint64_t> {
 protected:
  Planted() : in(3 * planted_threads) {
    std::iota(in.begin(), in.end(), 0.0F);
    expected = in;
    for (auto block = expected.begin(); block != expected.end(); block += planted_threads)
      std::reverse(block, block + planted_threads);
  }
  void SetUp() override { simt::set_schedule(GetParam()); }
  void TearDown() override { simt::set_schedule(0); }
  void expect_error(const char* fault, const testing::Matcher<const std::string&>& text) {
    EXPECT_THAT([&] { reverse_with(fault, in); }, testing::ThrowsMessage<simt::Error>(text));
    EXPECT_EQ(reverse_with("none", in), expected) << "a fault leaves the next launch alone";
  }

  std::vector<float> in, expected;
};
INSTANTIATE_TEST_SUITE_P(Schedules, Planted, testing::Values(0, 1, 2, 3));

TEST_P(Planted, NothingIsFoundWhereNothingIsWrong) {
  EXPECT_EQ(reverse_with("none", in), expected);
}

TEST_P(Planted, ADivergentBarrierIsNamed) {
  expect_error("divergent_barrier", AllOf(HasSubstr("planted.cu:"), HasSubstr("__syncthreads"),
                                          HasSubstr("divergent"), HasSubstr("has ended")));
}

TEST_P(Planted, AMaskThatNamesOtherLanesIsNamed) {
  expect_error("ended_lane", AllOf(HasSubstr("planted.cu:"), HasSubstr("__shfl_down_sync"),
                                   HasSubstr("names lane"), HasSubstr("has ended")));
  expect_error("mask_without_caller", AllOf(HasSubstr("__syncwarp"), HasSubstr("leaves out")));
  expect_error("mask_of_others", AllOf(HasSubstr("__shfl_sync"), HasSubstr("__syncthreads")));
  expect_error("two_shuffles", AllOf(HasSubstr("__shfl_xor_sync"), HasSubstr("__shfl_down_sync")));
  expect_error("two_masks", AllOf(HasSubstr("__syncwarp"), HasSubstr("with another mask")));
}

#if !defined(__SANITIZE_THREAD__)  // which would end the program at once
TEST_P(Planted, AMissingBarrierGivesWrongResults) {
  EXPECT_NE(reverse_with("missing_barrier", in), expected);
}

TEST(PlantedSchedules, AnArrayThatIsReusedTooSoonBreaksUnderEverySchedule) {
  const std::vector<float> in(planted_threads, 1.0F);
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    simt::set_schedule(seed);
    EXPECT_NE(reverse_with("reused_array", in), in);
  }
  simt::set_schedule(0);
}
#endif

TEST_P(Planted, UnwrittenMemoryIsNaN) {
  EXPECT_TRUE(std::isnan(reverse_with("uninitialised_dynamic", in)[5]));
}

#if !defined(__SANITIZE_ADDRESS__)  // which keeps these arrays where they cannot be filled
TEST_P(Planted, AnUnwrittenArrayIsNaNInEveryBlock) {
  const auto out = reverse_with("uninitialised_shared", in);
  for (std::size_t block = 0; block < 3; ++block)
    EXPECT_TRUE(std::isnan(out[block * planted_threads + planted_threads - 1 - 5]));
}
#endif

}  // namespace
}  // namespace warpstep::cuda

#include "data/io/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "engine/core/error.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::NoThreads;

// An interruption ends the loop of a command that has nothing else to do.
TEST(ParallelFor, LeavesTheCallersSignalsAlone) {
  sigset_t inside{}, blocked{};
  sigaddset(&blocked, SIGINT);
  const auto is_blocked = [&] {
    parallel_for(1, 1,
                 [&](int, std::uint64_t) { ::pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
    return sigismember(&inside, SIGINT) == 1;
  };
  EXPECT_FALSE(is_blocked());
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  EXPECT_TRUE(is_blocked());
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
}

TEST(OrderedFor, TakesInOrderAndThrowsTheFirst) {
  std::vector<std::uint64_t> taken;
  const auto take = [&](std::uint64_t index, std::uint64_t result) {
    EXPECT_EQ(result, index * index);
    taken.push_back(index);
  };
  ordered_for<std::uint64_t>(
      1000, 4, [](int, std::uint64_t index) { return index * index; }, take);
  EXPECT_EQ(taken.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
  taken.clear();
  const std::string message = message_of([&] {
    ordered_for<std::uint64_t>(
        1000, 4,
        [](int, std::uint64_t index) {
          if (index >= 37) fail<DataError>("at {}", index);
          return index * index;
        },
        take);
  });
  EXPECT_EQ(message, "at 37");
  EXPECT_EQ(taken.size(), 37U);
}

TEST(ParallelFor, CallsEachIndexOnceAndThrowsTheFirstError) {
  std::vector<std::atomic<int>> calls(1000);
  parallel_for(calls.size(), 4, [&](int, std::uint64_t i) { ++calls[i]; });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
  EXPECT_EQ(message_of([] {
              parallel_for(1000, 4, [](int, std::uint64_t i) {
                if (i == 7) fail<DataError>("at {}", i);
              });
            }),
            "at 7");
}

TEST(ParallelFor, NamesTheOptionWhereAThreadCannotStart) {
  const NoThreads none;
  EXPECT_THAT(message_of<Error>([] { parallel_for(1000, 2, [](int, std::uint64_t) {}); }),
              HasSubstr("; use fewer --workers"));
}

TEST(OrderedFor, NamesTheOptionWhereAThreadCannotStart) {
  const NoThreads none;
  const auto make = [](int, std::uint64_t index) { return index; };
  EXPECT_THAT(message_of<Error>([&] {
                ordered_for<std::uint64_t>(9, 2, make, [](std::uint64_t, std::uint64_t) {});
              }),
              HasSubstr("; use fewer --workers"));
}

TEST(OrderedFor, BlocksSignalsInItsThreads) {
  ordered_for<bool>(
      9, 2,
      [](int, std::uint64_t) {
        sigset_t inside{};
        ::pthread_sigmask(SIG_SETMASK, nullptr, &inside);
        return sigismember(&inside, SIGINT) == 1;
      },
      [](std::uint64_t, bool blocked) { EXPECT_TRUE(blocked); });
}

}  // namespace
}  // namespace warpstep::data

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "data/load/order.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint64_t> whole_epoch(const OrderOptions& options, std::uint64_t epoch) {
  Order order(options);
  const EpochOrder here = order.epoch(epoch);
  std::vector<std::uint64_t> places;
  for (std::uint64_t place = 0; place < options.samples; ++place) places.push_back(here.at(place));
  return places;
}

void expect_permutation(const std::vector<std::uint64_t>& order, const std::string& what) {
  const std::set<std::uint64_t> all(order.begin(), order.end());
  EXPECT_EQ(all.size(), order.size()) << what;
  EXPECT_EQ(*all.rbegin(), order.size() - 1) << what;
}

TEST(Order, EveryShuffleOfEverySizeGivesEachSampleOnce) {
  for (const std::uint64_t samples : {1U, 2U, 3U, 31U, 32U, 33U, 255U, 1000U, 4096U, 4097U}) {
    for (const Shuffle shuffle : {Shuffle::none, Shuffle::full, Shuffle::window})
      for (const std::uint64_t window : {32U, 100U, 512U})
        expect_permutation(whole_epoch({5, samples, shuffle, window}, 3),
                           fmt::format("{} samples, window {}", samples, window));
  }
}

TEST(Order, FeistelPermutesInConstantMemory) {
  for (const std::uint64_t count : {1U, 2U, 3U, 5U, 64U, 65U, 1000U, 65537U}) {
    const Feistel feistel(count, 7, 1, 0);
    std::vector<std::uint64_t> order;
    for (std::uint64_t place = 0; place < count; ++place) order.push_back(feistel.at(place));
    expect_permutation(order, fmt::format("{} places", count));
  }
}

// A chi-squared test of where sample 0 to 64 of 65 go over 6,500 epochs: 64 degrees of freedom,
// above 134 once in a million.
TEST(Order, FeistelSpreadsEvenly) {
  constexpr std::uint64_t count = 65, epochs = 6500;
  std::vector<double> seen(count * count);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const Feistel feistel(count, 1, epoch, 0);
    for (std::uint64_t place = 0; place < count; ++place) ++seen[place * count + feistel.at(place)];
  }
  const double expected = static_cast<double>(epochs) / count;
  for (std::uint64_t place = 0; place < count; ++place) {
    double chi = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const double off = seen[place * count + i] - expected;
      chi += off * off / expected;
    }
    EXPECT_LT(chi, 134) << "place " << place;
  }
}

// A chi-squared test of all 120 orders of 5 places over 20,000 epochs: 119 degrees of freedom,
// above 208 once in a million.
TEST(Order, FewPlacesHaveAllOrdersEquallyOften) {
  for (const std::uint64_t stream : {0U, 1U}) {
    std::map<std::array<std::uint64_t, 5>, int> seen;
    constexpr int epochs = 20000, orders = 120;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const Feistel few(5, 1, epoch, stream);
      ++seen[{few.at(0), few.at(1), few.at(2), few.at(3), few.at(4)}];
    }
    EXPECT_EQ(seen.size(), orders);
    double chi = 0;
    for (const auto& [order, times] : seen) {
      const double expected = static_cast<double>(epochs) / orders, off = times - expected;
      chi += off * off / expected;
    }
    EXPECT_LT(chi, 208) << "stream " << stream;
  }
  std::set<std::vector<std::uint64_t>> streams;
  for (std::uint64_t stream = 0; stream < 100; ++stream) {
    const Feistel few(64, 1, 0, stream);
    std::vector<std::uint64_t> order;
    for (std::uint64_t place = 0; place < 64; ++place) order.push_back(few.at(place));
    streams.insert(order);
  }
  EXPECT_EQ(streams.size(), 100U);
}

TEST(Order, DependsOnSeedAndEpochAlone) {
  for (const Shuffle shuffle : {Shuffle::full, Shuffle::window}) {
    const OrderOptions options{9, 3000, shuffle, 256};
    EXPECT_EQ(whole_epoch(options, 4), whole_epoch(options, 4));
    EXPECT_NE(whole_epoch(options, 4), whole_epoch(options, 5));
    EXPECT_NE(whole_epoch(options, 4), whole_epoch({10, 3000, shuffle, 256}, 4));
  }
}

// Where an epoch is cut off before its end, as Tail::drop does, no sample is always beyond the cut.
TEST(Order, EveryEpochEndsWithOtherSamples) {
  constexpr std::uint64_t samples = 1037, taken = samples / 64 * 64, epochs = 200;
  for (const Shuffle shuffle : {Shuffle::full, Shuffle::window}) {
    std::vector<int> left_out(samples);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto order = whole_epoch({3, samples, shuffle, 128}, epoch);
      for (std::uint64_t place = taken; place < samples; ++place) ++left_out[order[place]];
    }
    // 2.5 are expected of each; 20 in one test of 10^8.
    EXPECT_LT(*std::ranges::max_element(left_out), 20) << static_cast<int>(shuffle);
  }
}

// The purpose of a window: 256 successive samples come from few blocks of 8 neighbours. An epoch
// begins anywhere in one.
TEST(Order, AWindowReadsBlocksOfNeighbours) {
  auto order = whole_epoch({2, 4096, Shuffle::window, 256}, 0);
  const auto most_blocks = [&] {
    std::size_t most = 0;
    for (std::size_t begin = 0; begin < order.size(); begin += 256) {
      std::set<std::uint64_t> blocks;
      for (std::size_t i = begin; i < begin + 256; ++i) blocks.insert(order[i] / 8);
      most = std::max(most, blocks.size());
    }
    return most;
  };
  std::size_t least = 256;
  for (int begin = 0; begin < 256; ++begin) {
    least = std::min(least, most_blocks());
    std::ranges::rotate(order, order.begin() + 1);
  }
  EXPECT_EQ(least, 32U);
  std::uint64_t steps = 0;  // between neighbours: far apart in a shuffled window
  for (std::size_t i = 1; i < order.size(); ++i) steps += order[i] == order[i - 1] + 1 ? 1 : 0;
  EXPECT_LT(steps, 64U);
}

TEST(Order, IsThePermutationOfItsEpochWhereMemorySuffices) {
  const Permutation expected = shuffled(3, 7, 10);
  const auto order = whole_epoch({3, 10, Shuffle::full, 0}, 7);
  EXPECT_TRUE(std::equal(order.begin(), order.end(), expected.begin(), expected.end()));
}

TEST(Order, RefusesWhatItCannotShuffle) {
  EXPECT_THAT(testing::message_of<UsageError>([] {
                Order({0, std::uint64_t{1} << 32, Shuffle::full, 0});
              }),
              HasSubstr("4294967296 samples: at most"));
  EXPECT_THAT(testing::message_of<UsageError>([] {
                Order({0, 100, Shuffle::window, 31});
              }),
              HasSubstr("a shuffle window of 31 samples: must be at least 32"));
}

}  // namespace
}  // namespace warpstep::data

// Placements against brute force: buffers alive at the same time must not overlap, and the memory
// must be close to the minimum.
#include "engine/passes/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/types.h"
#include "tests/placements.h"

namespace warpstep {
namespace {

using testing_support::Dice;
using testing_support::expect_sound;
using testing_support::overlap_in_time;

std::vector<Lifetime> random_lifetimes(Dice& dice) {
  const std::uint32_t count = dice.below(60), nodes = 1 + dice.below(50);
  const bool nested = dice.below(2) == 0;  // as forward values are, needed again in reverse order
  std::vector<Lifetime> lives;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto a = static_cast<int>(dice.below(nodes));
    const auto b = nested ? static_cast<int>(2 * nodes) - a : static_cast<int>(dice.below(nodes));
    // From nothing through single bytes to sizes that differ by a thousand times.
    const std::size_t bytes =
        dice.below(8) == 0 ? dice.below(2) : 1 + dice.below(1U << dice.below(20));
    lives.push_back({bytes, std::min(a, b), std::max(a, b)});
  }
  return lives;
}

TEST(Place, NeverLetsTwoLiveBuffersOverlap) {
  Dice dice(1);
  for (int round = 0; round < 4000; ++round) {
    const std::vector<Lifetime> lives = random_lifetimes(dice);
    const Placement placement = place(lives);
    expect_sound(lives, placement.offsets, placement.bytes);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

// The bytes alive at each node, counted one by one.
TEST(LiveBound, IsTheMostThatIsAliveAtOnce) {
  Dice dice(2);
  for (int round = 0; round < 500; ++round) {
    const std::vector<Lifetime> lives = random_lifetimes(dice);
    std::size_t most = 0;
    for (int node = 0; node <= 100; ++node) {
      std::size_t alive = 0;
      for (const Lifetime& life : lives)
        if (life.first <= node && node <= life.last)
          alive += (life.bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
      most = std::max(most, alive);
    }
    ASSERT_EQ(live_bound(lives), most);
  }
}

TEST(Place, KnownCases) {
  EXPECT_EQ(place({}).bytes, 0U);
  const std::vector<Lifetime> apart{{200, 0, 1}, {200, 2, 3}};
  EXPECT_EQ(place(apart).bytes, 256U);  // one after the other in one place
  const std::vector<Lifetime> meeting{{200, 0, 2}, {200, 2, 3}};
  EXPECT_EQ(place(meeting).bytes, 512U);  // both are needed in node 2
}

// The minimum over all placements: that of some order in which each buffer takes the lowest gap.
std::size_t least_bytes(std::span<const Lifetime> lives) {
  std::vector<std::size_t> order(lives.size()), offsets(lives.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::size_t least = SIZE_MAX;
  do {
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      std::size_t& offset = offsets[order[k]];
      offset = 0;
      for (std::size_t tried = 0; tried <= k; ++tried)  // each buffer in the way lifts it once
        for (std::size_t j = 0; j < k; ++j)
          if (overlap_in_time(lives[order[k]], lives[order[j]]) &&
              offset < offsets[order[j]] + align_up(lives[order[j]].bytes) &&
              offsets[order[j]] < offset + align_up(lives[order[k]].bytes))
            offset = offsets[order[j]] + align_up(lives[order[j]].bytes);
      bytes = std::max(bytes, offset + align_up(lives[order[k]].bytes));
    }
    least = std::min(least, bytes);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(Place, FindsTheLeastPlacementOfAFewBuffers) {
  Dice dice(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<Lifetime> lives;
    for (int i = 0; i < 7; ++i) {
      const auto first = static_cast<int>(dice.below(8));
      lives.push_back({1 + dice.below(640), first, first + static_cast<int>(dice.below(4))});
    }
    ASSERT_EQ(place(lives).bytes, least_bytes(lives)) << "round " << round;
  }
}

TEST(Place, GivesTheSameForTheSame) {
  Dice dice(6);
  const std::vector<Lifetime> lives = random_lifetimes(dice);
  EXPECT_EQ(place(lives).offsets, place(lives).offsets);
}

// Steps of thousands of calls: close to the bytes alive at once, in acceptable time.
TEST(Place, TakesThousandsOfBuffers) {
  Dice dice(7);
  std::vector<Lifetime> lives;
  for (int i = 0; i < 2000; ++i) {
    const auto first = static_cast<int>(dice.below(1500));
    lives.push_back({1 + dice.below(1U << (6 + dice.below(17))), first, 3000 - first});
  }
  const Placement placement = place(lives);
  expect_sound(lives, placement.offsets, placement.bytes);
  EXPECT_LE(static_cast<double>(placement.bytes), 1.02 * static_cast<double>(live_bound(lives)));
}

// What a search costs is bounded: more buffers are placed in fewer ways.
TEST(Place, SpendsNoMoreOnMoreBuffers) {
  Dice dice(8);
  std::vector<Lifetime> lives;
  for (int i = 0; i < 4000; ++i) {
    const auto a = static_cast<int>(dice.below(3000)), b = static_cast<int>(dice.below(3000));
    lives.push_back({1 + dice.below(1U << (6 + dice.below(17))), std::min(a, b), std::max(a, b)});
  }
  const Placement placement = place(lives);
  expect_sound(lives, placement.offsets, placement.bytes);
  EXPECT_GT(placement.bytes, live_bound(lives));  // which would end the search
  EXPECT_LE(placement.looks, 350'000'000U);
}

}  // namespace
}  // namespace warpstep

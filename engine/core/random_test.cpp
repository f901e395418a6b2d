#include "engine/core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/core/bf16.h"

namespace warpstep {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of Random123 for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  static_assert(philox({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
}

TEST(Draw, IsPhiloxOfWhatItIsFor) {
  EXPECT_EQ(draw(0x0000000200000001, Purpose::order, 7, 0x0000000400000003),
            philox({3, 4, 7, 2}, {1, 2}));
}

TEST(Draw, SharesNoNumbersBetweenUses) {
  std::set<Words> seen;
  std::size_t made = 0;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32})
    for (const Purpose purpose : {Purpose::parameters, Purpose::order, Purpose::augmentation,
                                  Purpose::synthetic, Purpose::dropout})
      for (const std::uint32_t a : {0U, 1U})
        for (const std::uint64_t index : {0ULL, 1ULL, 1ULL << 32}) {
          seen.insert(draw(seed, purpose, a, index));
          ++made;
        }
  EXPECT_EQ(seen.size(), made);
}

TEST(Uniform, IsInTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_EQ(uniform(255), 0.0F);  // 24 bits count
  EXPECT_EQ(uniform(256), 0x1p-24F);
  EXPECT_EQ(uniform(0x80000000), 0.5F);
  EXPECT_EQ(uniform(0xffffffff), 1 - 0x1p-24F);
}

TEST(Below, ReachesEveryNumberAndNoOther) {
  EXPECT_EQ(below(0, 10), 0U);
  EXPECT_EQ(below(0xffffffff, 10), 9U);
  EXPECT_EQ(below(0x80000000, 10), 5U);
  EXPECT_EQ(below(0xffffffff, 1), 0U);
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < 7000; ++i) ++counts[below(draw(1, Purpose::order, 0, i)[0], 7)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

// Of all 16-bit numbers exactly as many round up as make the mean the number itself.
TEST(NarrowedAtRandom, KeepsTheMean) {
  for (const float x : {1 + 0x1p-10F, -3.14159F, 1e-30F, 2.5e-3F, 1.99999F}) {
    const float truncated =
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & std::uint32_t{0xFFFF0000});
    std::uint32_t up = 0;
    for (std::uint32_t random = 0; random < 0x10000; ++random)
      up += widened(narrowed_at_random(x, random)) != truncated;
    EXPECT_EQ(up, std::bit_cast<std::uint32_t>(x) & 0xFFFF) << x;
  }
}

TEST(NarrowedAtRandom, LeavesWhatIsABf16) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xFFFFU}) {
    for (const float x : {0.0F, -0.0F, 1.0F, -2.5F, infinity, -infinity})
      EXPECT_EQ(std::bit_cast<std::uint32_t>(widened(narrowed_at_random(x, random))),
                std::bit_cast<std::uint32_t>(x));
    for (const std::uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFFC00000U, 0xFFFFFFFFU})
      EXPECT_TRUE(std::isnan(widened(narrowed_at_random(std::bit_cast<float>(bits), random))));
  }
}

}  // namespace
}  // namespace warpstep

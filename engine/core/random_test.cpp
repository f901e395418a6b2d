#include "engine/core/random.h"

#include <gtest/gtest.h>

#include <set>

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

}  // namespace
}  // namespace warpstep

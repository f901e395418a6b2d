// Shared by tests of the memory planner: random numbers, and the rules of every placement.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "engine/core/random.h"
#include "engine/passes/memory.h"

namespace warpstep::testing_support {

// Random numbers for a test, in sequence.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t below(std::uint32_t n) {
    return warpstep::below(draw(seed_, Purpose::synthetic, 0, next_++)[0], n);
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

inline bool overlap_in_time(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

inline void expect_sound(std::span<const Lifetime> lives, std::span<const std::size_t> offsets,
                         std::size_t arena_bytes) {
  ASSERT_EQ(lives.size(), offsets.size());
  for (std::size_t i = 0; i < lives.size(); ++i) {
    ASSERT_EQ(offsets[i] % arena_alignment, 0U) << "buffer " << i;
    ASSERT_LE(offsets[i] + lives[i].bytes, arena_bytes) << "buffer " << i;
    for (std::size_t j = 0; j < i; ++j) {
      if (!overlap_in_time(lives[i], lives[j])) continue;
      ASSERT_TRUE(offsets[i] + lives[i].bytes <= offsets[j] ||
                  offsets[j] + lives[j].bytes <= offsets[i])
          << "buffers " << j << " and " << i;
    }
  }
  ASSERT_GE(arena_bytes, live_bound(lives));
}

}  // namespace warpstep::testing_support

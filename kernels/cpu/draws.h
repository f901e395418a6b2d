// Random words, the same as engine/core/random.h draws one by one: 32 draws at once fill vector
// registers.
#pragma once

#include <cstdint>

#include "engine/core/random.h"

namespace warpstep::cpu {

// What names a sequence of draws, see draw().
struct Sequence {
  std::uint64_t seed;
  Purpose purpose;
  std::uint32_t a;
};

constexpr std::int64_t draws_at_once = 32;  // of four words each

// Word w of draw i is lane[w][i].
struct Draws {
  alignas(64) std::uint32_t lane[4][draws_at_once];
};

// Draws `index` to `index` + 31 of a sequence.
void draw_all(const Sequence& of, std::uint64_t index, Draws& to);

}  // namespace warpstep::cpu

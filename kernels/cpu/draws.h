// Random words, the same as engine/core/random.h draws one by one: 32 draws at once fill vector
// registers.
#pragma once

#include <cstdint>

#include "engine/core/random.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {

// What names a sequence of draws, see draw().
struct Sequence {
  std::uint64_t seed;
  Purpose purpose;
  std::uint32_t a;
};

constexpr int draws_at_once = 32;  // of four words each

// Word w of draw i is lane[w][i].
struct Draws {
  alignas(64) std::uint32_t lane[4][draws_at_once];
};

namespace several {
#include "engine/core/philox.inc"
}  // namespace several

// Each counter becomes what is drawn with it.
WARPSTEP_LOOP void philox_all_loop(Draws& words, std::uint64_t seed) {
  several::philox(static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                  words.lane);
}
inline const auto philox_all = vectorized<philox_all_loop>();

// Draws `index` to `index` + 31 of a sequence.
inline void draw_all(const Sequence& of, std::uint64_t index, Draws& to) {
  for (std::uint32_t i = 0; i < draws_at_once; ++i) {
    const std::uint64_t at = index + i;
    to.lane[0][i] = static_cast<std::uint32_t>(at);
    to.lane[1][i] = static_cast<std::uint32_t>(at >> 32);
    to.lane[2][i] = of.a;
    to.lane[3][i] = static_cast<std::uint32_t>(of.purpose);
  }
  philox_all(to, of.seed);
}

}  // namespace warpstep::cpu

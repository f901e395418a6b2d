#include "kernels/cpu/draws.h"

#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// philox() for all counters, each of which becomes what is drawn with it.
WARPSTEP_LOOP void philox_all_loop(Draws& words, std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < draws_at_once; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * words.lane[0][i];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * words.lane[2][i];
      words.lane[0][i] = static_cast<std::uint32_t>(b >> 32) ^ words.lane[1][i] ^ key0;
      words.lane[1][i] = static_cast<std::uint32_t>(b);
      words.lane[2][i] = static_cast<std::uint32_t>(a >> 32) ^ words.lane[3][i] ^ key1;
      words.lane[3][i] = static_cast<std::uint32_t>(a);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}
const auto philox_all = vectorized<philox_all_loop>();

}  // namespace

void draw_all(const Sequence& of, std::uint64_t index, Draws& to) {
  for (std::int64_t i = 0; i < draws_at_once; ++i) {
    const std::uint64_t at = index + static_cast<std::uint64_t>(i);
    to.lane[0][i] = static_cast<std::uint32_t>(at);
    to.lane[1][i] = static_cast<std::uint32_t>(at >> 32);
    to.lane[2][i] = of.a;
    to.lane[3][i] = static_cast<std::uint32_t>(of.purpose);
  }
  philox_all(to, of.seed);
}

}  // namespace warpstep::cpu

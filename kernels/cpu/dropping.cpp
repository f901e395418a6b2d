#include "kernels/cpu/dropping.h"

#include <bit>
#include <cmath>

#include "kernels/cpu/draws.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

WARPSTEP_LOOP void masks(const Draws& words, std::uint32_t threshold, std::uint32_t* kept) {
  for (std::int64_t i = 0; i < draws_at_once; ++i)
    for (std::int64_t l = 0; l < 4; ++l)
      kept[4 * i + l] = words.lane[l][i] >> 8 >= threshold ? ~std::uint32_t{0} : 0;
}

// Drops or scales `count` elements by their words, in the order of the draws, from word `phase` on.
template <class T>
WARPSTEP_LOOP void keep_loop(const Draws& words, std::int64_t phase, std::uint32_t threshold,
                             float scale, const T* x, T* y, std::int64_t count) {
  alignas(64) std::uint32_t kept[4 * draws_at_once];
  masks(words, threshold, kept);
  for (std::int64_t e = 0; e < count; ++e)
    y[e] = rounded_to<T>(std::bit_cast<float>(std::bit_cast<std::uint32_t>(as_float(x[e]) * scale) &
                                              kept[phase + e]));
}
template <class T>
const auto keep = vectorized<keep_loop<T>>();

WARPSTEP_LOOP void factors_loop(const Draws& words, std::uint32_t threshold, float scale,
                                float* factors) {
  alignas(64) std::uint32_t kept[4 * draws_at_once];
  masks(words, threshold, kept);
  for (std::int64_t e = 0; e < 4 * draws_at_once; ++e)
    factors[e] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & kept[e]);
}
const auto write_factors = vectorized<factors_loop>();

}  // namespace

// uniform(word) >= rate as a comparison of integers: uniform() is 24 bits of the word / 2^24.
Dropping::Dropping(double rate, std::uint32_t layer, std::int64_t count)
    : layer_(layer),
      count_(count),
      threshold_(static_cast<std::uint32_t>(std::ceil(rate * 0x1p24))),
      scale_(static_cast<float>(1 / (1 - rate))) {}

template <class T>
void Dropping::apply(const StepState& state, const T* x, T* y, std::int64_t begin,
                     std::int64_t end) const {
  Draws words;
  const std::uint64_t drawn = first_draw(state, count_);
  for (std::int64_t first = begin; first < end;) {
    const std::uint64_t at = drawn + static_cast<std::uint64_t>(first);
    const auto phase = static_cast<std::int64_t>(at % 4);
    const std::int64_t count = std::min(4 * draws_at_once - phase, end - first);
    draw_all({state.seed, Purpose::dropout, layer_}, at / 4, words);
    keep<T>(words, phase, threshold_, scale_, x + first, y + first, count);
    first += count;
  }
}

template void Dropping::apply(const StepState&, const float*, float*, std::int64_t,
                              std::int64_t) const;
template void Dropping::apply(const StepState&, const Bf16*, Bf16*, std::int64_t,
                              std::int64_t) const;

const float* Dropping::factors(const StepState& state, std::int64_t first, std::int64_t count,
                               float* to) const {
  static_assert(slack >= 4 * draws_at_once + 3);
  Draws words;
  const std::uint64_t at = first_draw(state, count_) + static_cast<std::uint64_t>(first);
  const auto phase = static_cast<std::int64_t>(at % 4);
  for (std::int64_t e = 0; e < phase + count; e += 4 * draws_at_once) {
    draw_all({state.seed, Purpose::dropout, layer_}, (at + static_cast<std::uint64_t>(e)) / 4,
             words);
    write_factors(words, threshold_, scale_, to + e);
  }
  return to + phase;
}

}  // namespace warpstep::cpu

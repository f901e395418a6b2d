// Dropout on the CPU: an element's random word depends on its place in the logical shape. Bound by
// the arithmetic of the draws; 32 at once fill vector registers. Figures: bench/RECORDS.md.
#include <bit>
#include <cmath>

#include "engine/core/random.h"
#include "engine/graph/step_state.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t draws = 32;          // at once, for four elements each
constexpr std::int64_t chunk = 64 * draws;  // elements per task

struct Words {
  alignas(64) std::uint32_t lane[4][draws];  // in: the counters; out: the words drawn with them
};

// philox() for all counters.
WARPSTEP_LOOP void philox_all_loop(Words& words, std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < draws; ++i) {
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

// Drops or scales `count` elements by their words, in the order of the draws.
template <class T>
WARPSTEP_LOOP void keep_loop(const Words& words, std::uint32_t threshold, float scale, const T* x,
                             T* y, std::int64_t count) {
  alignas(64) std::uint32_t kept[4 * draws];
  for (std::int64_t i = 0; i < draws; ++i)
    for (std::int64_t l = 0; l < 4; ++l)
      kept[4 * i + l] = words.lane[l][i] >> 8 >= threshold ? ~std::uint32_t{0} : 0;
  for (std::int64_t e = 0; e < count; ++e)
    y[e] = rounded_to<T>(
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(as_float(x[e]) * scale) & kept[e]));
}
template <class T>
const auto keep = vectorized<keep_loop<T>>();

struct Dropping {
  std::uint32_t layer;
  std::uint32_t threshold;  // words whose upper 24 bits are below it drop their element
  float scale;

  // Elements [begin, end), begin a multiple of 4.
  template <class T>
  void operator()(const StepState& state, const T* x, T* y, std::int64_t begin,
                  std::int64_t end) const {
    Words words;
    for (std::int64_t first = begin; first < end; first += 4 * draws) {
      for (std::int64_t i = 0; i < draws; ++i) {
        const std::uint64_t index = static_cast<std::uint64_t>(state.step) << 32 |
                                    static_cast<std::uint64_t>(first / 4 + i);
        words.lane[0][i] = static_cast<std::uint32_t>(index);
        words.lane[1][i] = static_cast<std::uint32_t>(index >> 32);
        words.lane[2][i] = layer;
        words.lane[3][i] = static_cast<std::uint32_t>(Purpose::dropout);
      }
      philox_all(words, state.seed);
      keep<T>(words, threshold, scale, x + first, y + first, std::min(4 * draws, end - first));
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> bind(const Dropout& op, const Operands& operands) {
  // uniform(word) >= rate as a comparison of integers: uniform() is 24 bits of the word / 2^24.
  const Dropping dropping{op.layer, static_cast<std::uint32_t>(std::ceil(op.rate * 0x1p24)),
                          static_cast<float>(1 / (1 - op.rate))};
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel(
        "philox loops", [dropping, count = operands.out_shape().count()](const Buffers& b) {
          const StepState state = *as<StepState>(b.in[1]);
#pragma omp parallel for schedule(static) if (count > 4 * chunk)
          for (std::int64_t begin = 0; begin < count; begin += chunk)
            dropping(state, as<T>(b.in[0]), as<T>(b.out[0]), begin, std::min(count, begin + chunk));
        });
  });
}

}  // namespace warpstep::cpu

// Counter-based random numbers: every draw is a function of (key, counter) and nothing else.
#pragma once

#include <array>
#include <cstdint>

namespace warpstep {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The use of a sequence of draws; part of the counter, so that no two uses share numbers.
enum class Purpose : std::uint32_t {
  parameters = 1,
  order = 2,
  augmentation = 3,
  synthetic = 4,
  dropout = 5,
  mask = 6,
  windows = 7,
  sampling = 8,
  moments = 9
};

// Draw `index` of the sequence (seed, purpose, a): four independent 32-bit words.
constexpr std::array<std::uint32_t, 4> draw(std::uint64_t seed, Purpose purpose, std::uint32_t a,
                                            std::uint64_t index) {
  return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), a,
                 static_cast<std::uint32_t>(purpose)},
                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// Uniform in [0, 1) with 24 bits, exact in float.
constexpr float uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Uniform in [0, n) by multiplication (Lemire 2019, without the rejection: bias below n / 2^32).
constexpr std::uint32_t below(std::uint32_t word, std::uint32_t n) {
  return static_cast<std::uint32_t>(std::uint64_t{word} * n >> 32);
}

}  // namespace warpstep

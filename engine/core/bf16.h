// The 16-bit number bf16: the upper half of a float32.
#pragma once

#include <bit>
#include <cstdint>

namespace warpstep {

struct Bf16 {
  std::uint16_t bits;
  bool operator==(const Bf16&) const = default;
};

// Both are always inlined: loops that are compiled once per instruction set use them.
inline __attribute__((always_inline)) float widened(Bf16 number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number.bits) << 16);
}

// To the nearest bf16, ties to even; NaN stays NaN, and so does its sign.
inline __attribute__((always_inline)) Bf16 narrowed(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : nearest)};
}

// To one of the two bf16 around it, with a random 16-bit number: up with the chance that makes the
// mean of many the number itself. A bf16 stays as it is, and so do infinities and NaN.
inline __attribute__((always_inline)) Bf16 narrowed_at_random(float number, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return {
      static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : (bits + random) >> 16)};
}

}  // namespace warpstep

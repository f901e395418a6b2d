#include "tests/fuzz/harness/mutate.h"

#include <algorithm>
#include <array>

#include "engine/core/random.h"

namespace warpstep::fuzz {
namespace {

constexpr std::size_t most_growth = 1 << 16;  // bytes

// Draws a sequence of numbers from (seed, round).
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint32_t round) : seed_(seed), round_(round) {}
  std::uint32_t word() {
    if (used_ % 4 == 0) words_ = draw(seed_, Purpose::synthetic, round_, used_ / 4);
    return words_[used_++ % 4];
  }
  std::size_t below(std::size_t n) {  // 0 for 0
    return n == 0 ? 0 : warpstep::below(word(), static_cast<std::uint32_t>(n));
  }
  // Mostly short: 1 to 16, sometimes up to n.
  std::size_t length(std::size_t n) { return std::min(n, 1 + below(below(4) == 0 ? n : 16)); }

 private:
  std::uint64_t seed_;
  std::uint32_t round_;
  std::uint64_t used_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

// Integers at which arithmetic often fails.
std::uint64_t interesting(Dice& dice) {
  const std::uint64_t bit = std::uint64_t{1} << dice.below(64);
  switch (dice.below(4)) {
    case 0: return bit;
    case 1: return bit - 1;
    case 2: return ~bit;
    default: return dice.below(1 << 16);
  }
}

void put_integer(Bytes& bytes, Dice& dice) {
  const std::size_t width = std::size_t{1} << dice.below(4);
  if (bytes.size() < width) return;
  const std::size_t at = dice.below(bytes.size() - width + 1);
  const std::uint64_t value = interesting(dice);
  const bool big_endian = dice.below(2) == 0;
  for (std::size_t i = 0; i < width; ++i)
    bytes[at + i] = static_cast<std::uint8_t>(value >> 8 * (big_endian ? width - 1 - i : i));
}

Bytes range_of(const Bytes& bytes, Dice& dice) {
  const std::size_t begin = dice.below(bytes.size());
  const std::size_t length = dice.length(bytes.size() - begin);
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return Bytes(from, from + static_cast<std::ptrdiff_t>(length));
}

void edit(Bytes& bytes, const Bytes& other, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (dice.below(10)) {
    case 0:
    case 1:
      if (!bytes.empty()) *place ^= static_cast<std::uint8_t>(1U << dice.below(8));
      break;
    case 2:
      if (!bytes.empty()) *place = static_cast<std::uint8_t>(dice.word());
      break;
    case 3: put_integer(bytes, dice); break;
    case 4: bytes.resize(at); break;
    case 5:
      bytes.erase(place, place + static_cast<std::ptrdiff_t>(dice.length(bytes.size() - at)));
      break;
    case 6: bytes.insert(place, dice.length(64), static_cast<std::uint8_t>(dice.word())); break;
    case 7: {  // a range of this file, once or many times
      const Bytes range = range_of(bytes, dice);
      const std::size_t times = 1 + dice.below(dice.below(8) == 0 ? 200 : 3);
      Bytes repeated;
      for (std::size_t i = 0; i < times; ++i)
        repeated.insert(repeated.end(), range.begin(), range.end());
      bytes.insert(place, repeated.begin(), repeated.end());
      break;
    }
    case 8: {  // overwritten by a range of another file
      const Bytes range = range_of(other, dice);
      const std::size_t length = std::min(range.size(), bytes.size() - at);
      std::copy_n(range.begin(), length, place);
      break;
    }
    default: {  // the rest of another file
      const std::size_t from = dice.below(other.size());
      bytes.resize(at);
      bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
  }
}

}  // namespace

Bytes mutated(const std::vector<Bytes>& corpus, std::uint64_t seed, std::uint32_t round) {
  Dice dice(seed, round);
  std::size_t longest = 0;
  for (const Bytes& file : corpus) longest = std::max(longest, file.size());
  Bytes bytes = corpus[dice.below(corpus.size())];
  const std::size_t edits = 1 + dice.below(1 + dice.below(8));
  for (std::size_t i = 0; i < edits; ++i) {
    edit(bytes, corpus[dice.below(corpus.size())], dice);
    if (bytes.size() > longest + most_growth) bytes.resize(longest + most_growth);
  }
  return bytes;
}

}  // namespace warpstep::fuzz

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "engine/core/checksum.h"

namespace warpstep {
namespace {

std::uint32_t of(std::string_view text) {
  return crc32c(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

TEST(Checksum, MatchesThePublishedVectors) {
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xe3069283U);
  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0)), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0xff)), 0x62a8ab43U);
  std::vector<std::uint8_t> rising(32);
  std::iota(rising.begin(), rising.end(), std::uint8_t{0});
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
}

TEST(Checksum, MatchesBitByBitForEveryLengthAndOffset) {
  std::vector<std::uint8_t> bytes(64);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + 5);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; begin + length <= bytes.size(); ++length) {
      std::uint32_t expected = ~0U;
      for (std::size_t i = 0; i < length; ++i) {
        expected ^= bytes[begin + i];
        for (int bit = 0; bit < 8; ++bit)
          expected = expected >> 1 ^ ((expected & 1) != 0 ? 0x82f63b78U : 0U);
      }
      EXPECT_EQ(crc32c(std::span(bytes).subspan(begin, length)), ~expected);
    }
  }
}

}  // namespace
}  // namespace warpstep

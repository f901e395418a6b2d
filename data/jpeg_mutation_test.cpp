// Thousands of damaged JPEG files: each is refused with a DataError, or all routes give what a
// decoder of the whole file gives.
#include <gtest/gtest.h>

#include <algorithm>

#include "data/jpeg_testing.h"

namespace warpstep::data {
namespace {

using testing::Bytes;
using testing::Seed;
using testing::seeds;
using testing::Verdict;
using testing::verdict_on;

// Where segments and intervals begin, by every marker that is there.
std::vector<std::size_t> markers_of(const Bytes& file) {
  std::vector<std::size_t> markers;
  for (std::size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == 0xff && file[i + 1] != 0 && file[i + 1] != 0xff) markers.push_back(i);
  return markers;
}

Bytes edited(Bytes file, std::array<std::uint32_t, 4> r, std::uint32_t kind) {
  if (file.size() < 8) return file;
  const auto size = static_cast<std::uint32_t>(file.size());
  const auto at = file.begin() + below(r[1], size - 4);
  const auto value = static_cast<std::uint8_t>(r[2]);
  const std::vector<std::size_t> markers = markers_of(file);
  const auto some_marker = [&](std::uint32_t word) {
    if (markers.empty()) return file.begin();
    return file.begin() + static_cast<std::ptrdiff_t>(
                              markers[below(word, static_cast<std::uint32_t>(markers.size()))]);
  };
  switch (kind) {
    case 0: *at ^= static_cast<std::uint8_t>(1U << value % 8); break;
    case 1: *at = value; break;
    case 2: *at = 0xff; break;
    case 3: file.insert(at, value); break;
    case 4: file.erase(at, at + 1 + value % 4); break;
    case 5: file.resize(below(r[1], size)); break;
    case 6: some_marker(r[1])[1] = static_cast<std::uint8_t>(0xc0 + value % 0x40); break;
    case 7: some_marker(r[1])[1] = static_cast<std::uint8_t>(0xd0 + value % 10); break;
    case 8: std::swap(some_marker(r[1])[1], some_marker(r[2])[1]); break;
    case 9: {  // two neighbouring segments or intervals change places
      if (markers.size() < 3) break;
      const std::size_t m = below(r[1], static_cast<std::uint32_t>(markers.size() - 2));
      std::rotate(file.begin() + static_cast<std::ptrdiff_t>(markers[m]),
                  file.begin() + static_cast<std::ptrdiff_t>(markers[m + 1]),
                  file.begin() + static_cast<std::ptrdiff_t>(markers[m + 2]));
      break;
    }
    case 10: {  // a segment or interval is there twice
      const auto begin = some_marker(r[1]);
      const Bytes copy(begin, std::min(begin + 60, file.end()));
      file.insert(begin, copy.begin(), copy.end());
      break;
    }
    case 11: {  // the header: sizes, factors, intervals
      const auto marker = some_marker(r[1] >> 3);
      const std::ptrdiff_t offset = 4 + (r[3] >> 8) % 12;
      if (file.end() - marker > offset) marker[offset] ^= static_cast<std::uint8_t>(1 + value % 64);
      break;
    }
    default: break;
  }
  return file;
}

Bytes damaged(const Bytes& file, std::uint32_t round) {
  const auto first = draw(11, Purpose::synthetic, round, 0);
  Bytes result = file;
  for (std::uint32_t edit = 0; edit < 1 + first[0] % 3; ++edit) {
    const auto r = draw(11, Purpose::synthetic, round, 1 + edit);
    result = edited(result, r, below(r[0], 12));
  }
  return result;
}

TEST(JpegMutation, DamagedFilesAreRefusedOrGiveTheSamePixelsOnEveryRoute) {
  JpegDecoder decoder;
  const std::vector<Seed> files = seeds();
  int refused = 0;
  int equal = 0;
  int sought = 0;
  int made_seekable = 0;
  for (std::uint32_t round = 0; round < 7000; ++round) {
    const Seed& seed = files[round % files.size()];
    const Verdict verdict = verdict_on(decoder, damaged(seed.file, round), round);
    ASSERT_EQ(verdict.disagreement, "") << seed.name << ", round " << round;
    refused += verdict.refused ? 1 : 0;
    equal += verdict.equal;
    sought += verdict.sought;
    made_seekable += verdict.made_seekable ? 1 : 0;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(equal, 3000);
  EXPECT_GT(sought, 300);
  EXPECT_GT(made_seekable, 500);
}

}  // namespace
}  // namespace warpstep::data

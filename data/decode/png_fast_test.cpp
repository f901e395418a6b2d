#include <gtest/gtest.h>

#include "data/decode/png_fast.h"
#include "engine/core/random.h"
#include "tests/fuzz/png_agreement.h"
#include "tests/fuzz/png_parts.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using fuzz::append_word;
using fuzz::by_fast_reader;
using fuzz::by_libpng;
using fuzz::Bytes;
using fuzz::deflated;
using fuzz::png_disagreement;
using fuzz::png_file;
using fuzz::png_header;
using fuzz::PngChunk;
using fuzz::PngSpec;
using fuzz::with_right_checksums;

Shape shape_of(const PngSpec& spec, std::int64_t channels) {
  return {spec.height, spec.width, channels};
}

// Both ways must take the file, and give the same.
void expect_equal(const Bytes& file, const Shape& shape, const std::string& what) {
  const auto slow = by_libpng(file, shape);
  ASSERT_TRUE(slow.has_value()) << what;
  EXPECT_EQ(by_fast_reader(file, shape), slow) << what;
}

void expect_equal(const PngSpec& spec) {
  const bool colour = spec.colour == 2 || spec.colour == 6;
  const std::string what =
      fmt::format("{} x {}, colour type {}, filter {}, {} IDATs, window 2^{}", spec.width,
                  spec.height, spec.colour, spec.filter, spec.idats, spec.window_bits);
  if (!colour) expect_equal(spec.file(), shape_of(spec, 1), what);
  expect_equal(spec.file(), shape_of(spec, 3), what);
}

TEST(PngFast, EqualsLibpngForEverySizeColourAndFilter) {
  for (const int colour : {0, 2, 4, 6}) {
    for (int filter = -1; filter < 5; ++filter) {
      for (const std::uint32_t width : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 16U, 17U, 31U, 32U, 100U}) {
        for (const std::uint32_t height : {1U, 2U, 3U, 32U})
          expect_equal(PngSpec{.width = width,
                               .height = height,
                               .colour = colour,
                               .filter = filter,
                               .salt = width + height});
      }
    }
  }
}

TEST(PngFast, EqualsLibpngForAnyNumberOfIdats) {
  for (int idats = 1; idats < 70; ++idats) expect_equal(PngSpec{.idats = idats});  // some empty
  for (const int idats : {2, 3, 5, 300})
    expect_equal(PngSpec{.width = 120, .height = 90, .idats = idats});
}

TEST(PngFast, EqualsLibpngForEveryWindow) {
  for (int bits = 9; bits <= 15; ++bits) {
    expect_equal(PngSpec{.width = 8, .height = 8, .window_bits = bits});
    // Windows that are smaller than the image are left to libpng.
    const PngSpec large{.width = 120, .height = 120, .window_bits = bits};
    EXPECT_EQ(by_fast_reader(large.file(), shape_of(large, 3)).has_value(), bits == 15);
    EXPECT_TRUE(by_libpng(large.file(), shape_of(large, 3)).has_value());
  }
}

// A distance that reaches further back than the window which the header promises: zlib refuses it.
TEST(PngFast, TakesNoDistanceBeyondTheWindow) {
  const PngSpec spec{.width = 120, .height = 120};
  std::vector<PngChunk> chunks = spec.chunks();
  Bytes raw = spec.raw();
  // The last rows repeat the first, about 40 KB back at most; random enough to match nothing else.
  std::copy_n(raw.begin(), 361 * 40, raw.begin() + 361 * 80);
  chunks[1].data = deflated(raw, 9);
  EXPECT_TRUE(by_fast_reader(png_file(chunks), shape_of(spec, 3)).has_value());
  chunks[1].data[0] = 0x08;  // a window of 256 bytes
  const Bytes file = with_right_checksums(png_file(chunks));
  EXPECT_FALSE(by_libpng(file, shape_of(spec, 3)).has_value());
  EXPECT_FALSE(by_fast_reader(file, shape_of(spec, 3)).has_value());
}

TEST(PngFast, LeavesOtherKindsToLibpng) {
  for (const PngSpec& spec :
       {PngSpec{.depth = 16}, PngSpec{.depth = 4, .colour = 0}, PngSpec{.colour = 3}}) {
    EXPECT_FALSE(by_fast_reader(spec.file(), shape_of(spec, 3)).has_value());
    EXPECT_TRUE(by_libpng(spec.file(), shape_of(spec, 3)).has_value());
  }
  EXPECT_FALSE(by_fast_reader(PngSpec{}.file(), {4, 5, 1}).has_value());
  EXPECT_FALSE(by_fast_reader(PngSpec{}.file(), {5, 4, 3}).has_value());
}

// Chunks that libpng skips or refuses, before, between and after the IDATs.
TEST(PngFast, JudgesChunksAsLibpngDoes) {
  int taken = 0, refused = 0;
  for (const PngChunk& chunk :
       {PngChunk{"tEXt", {1, 2}}, PngChunk{"tRNS", {0, 1, 0, 2, 0, 3}}, PngChunk{"tIME", {}},
        PngChunk{"abCd", {9}}, PngChunk{"ABCD", {}}, PngChunk{"abcd", {}}, PngChunk{"a Cd", {}},
        PngChunk{"aB1d", {}}, PngChunk{"PLTE", {1, 2, 3}},
        PngChunk{"IHDR", PngSpec{}.chunks()[0].data}, PngChunk{"IDAT", {}}, PngChunk{"IDAT", {1}},
        PngChunk{"IEND", {}}, PngChunk{"IEND", {1}}, PngChunk{"gAMA", {0, 0, 0, 0}},
        PngChunk{"iCCP", {1}}, PngChunk{"sRGB", {7}}}) {
    std::vector<PngChunk> chunks = PngSpec{.idats = 2}.chunks();
    for (std::size_t at = 0; at <= chunks.size(); ++at) {
      std::vector<PngChunk> more = chunks;
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(at), chunk);
      const Bytes file = png_file(more);
      EXPECT_EQ(png_disagreement(file), "") << chunk.name << " at " << at;
      const bool fast = by_fast_reader(file, {4, 5, 3}).has_value();
      ++(fast ? taken : refused);
      if (chunk.name == "tEXt") {
        EXPECT_EQ(fast, at != 0 && at != 2) << at;  // first, or between the IDATs
      }
    }
  }
  EXPECT_GT(taken, 20);
  EXPECT_GT(refused, 40);
}

TEST(PngFast, RefusesEveryCutAndEveryFlippedBit) {
  const Bytes whole = PngSpec{.idats = 2}.file();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(
        by_fast_reader(Bytes(whole.begin(), whole.begin() + static_cast<int>(bytes)), {4, 5, 3}));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes broken = whole;
    broken[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_FALSE(by_fast_reader(broken, {4, 5, 3})) << bit;
  }
}

TEST(PngFast, AllocatesInProportionToTheFile) {
  std::vector<PngChunk> chunks = PngSpec{}.chunks();
  chunks[0] = png_header(16000, 16000, 8, 2);
  const Bytes file = png_file(chunks);
  PngFastReader reader;
  Bytes none;
  const Shape shape{16000, 16000, 3};
  const std::span<std::uint8_t> pixels(none.data(), idx(shape.count()));  // never touched
  testing_support::forget_allocations();
  EXPECT_FALSE(reader.decode(file, shape, pixels));
  EXPECT_LT(testing_support::largest_allocation_bytes(), 10'000U);
}

// The one difference that png_fast.h allows for: a block of the fixed codes with the length code
// 286, which the format leaves undefined. 0, then that code at distance 1: 259 zeros.
TEST(PngFast, ReadsUndefinedCodesUnderRightChecksums) {
  const PngSpec spec{.width = 36, .height = 7, .colour = 0};
  std::vector<PngChunk> chunks = spec.chunks();
  chunks[1].data = {0x78, 0x9c, 0x63, 0x18, 0x03, 0x00};
  append_word(chunks[1].data, static_cast<std::uint32_t>(adler32(1, Bytes(259).data(), 259)));
  const Bytes file = png_file(chunks);
  EXPECT_EQ(by_fast_reader(file, shape_of(spec, 1)), Bytes(252));
  EXPECT_FALSE(by_libpng(file, shape_of(spec, 1)).has_value());
  EXPECT_EQ(png_disagreement(file), "");
}

// Bytes of the data, whole chunks, and the order of both; checksums mended afterwards.
Bytes damaged(std::vector<PngChunk> chunks, std::uint32_t round) {
  const auto first = draw(5, Purpose::synthetic, round, 0);
  for (std::uint32_t edit = 0; edit <= below(first[0], 3) && !chunks.empty(); ++edit) {
    const auto r = draw(5, Purpose::synthetic, round, 1 + edit);
    const auto count = static_cast<std::uint32_t>(chunks.size());
    const std::uint32_t at = below(r[0], count), other = below(r[1], count);
    Bytes& data = chunks[at].data;
    const auto byte = data.empty() ? 0 : below(r[3], static_cast<std::uint32_t>(data.size()));
    switch (below(r[2], 9)) {
      case 0: std::swap(chunks[at], chunks[other]); break;
      case 1: chunks.insert(chunks.begin() + at, PngChunk(chunks[other])); break;
      case 2: chunks.erase(chunks.begin() + at); break;
      case 3: chunks[at].name[r[3] % 4] ^= static_cast<char>(1U << (r[3] >> 8) % 8); break;
      case 4: data.resize(byte); break;
      case 5:
        data.insert(data.begin() + byte, 1 + r[1] % 3, static_cast<std::uint8_t>(r[1]));
        break;
      case 6:
        if (!data.empty()) data[byte] = static_cast<std::uint8_t>(r[1]);
        break;
      default:
        if (!data.empty()) data[byte] ^= static_cast<std::uint8_t>(1U << r[1] % 8);
        break;
    }
  }
  return with_right_checksums(png_file(chunks));
}

TEST(PngFast, TakesNoDamagedFileThatLibpngRefuses) {
  const std::vector<PngSpec> seeds{{.idats = 2},
                                   {.width = 32, .height = 32, .idats = 3},
                                   {.width = 7, .height = 9, .colour = 0, .window_bits = 9},
                                   {.colour = 6, .idats = 2, .salt = 3},
                                   {.width = 60, .height = 60, .colour = 4}};
  int taken = 0;
  for (std::uint32_t round = 0; round < 20'000; ++round) {
    const PngSpec& seed = seeds[round % seeds.size()];
    const Bytes file = damaged(seed.chunks(), round);
    ASSERT_EQ(png_disagreement(file), "") << "round " << round;
    taken += by_fast_reader(file, shape_of(seed, 3)).has_value() ? 1 : 0;
  }
  EXPECT_GT(taken, 500);  // damage that leaves a right file: other pixels, another skipped chunk
}

}  // namespace
}  // namespace warpstep::data

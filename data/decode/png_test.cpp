#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "data/decode/decode.h"
#include "data/decode/png.h"
#include "engine/core/text.h"
#include "tests/data_testing.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::some_pixels;
using testing::some_png;

const Shape small{4, 5, 3};
using Bytes = std::vector<std::uint8_t>;

Bytes decode(const Bytes& file, const Shape& shape = small) {
  Bytes pixels(static_cast<std::size_t>(shape.count()));
  decode_png(file, "a.png", shape, pixels);
  return pixels;
}

std::string png_refusal(const Bytes& file, const Shape& shape = small) {
  return message_of([&] { decode(file, shape); });
}

png_color palette_entry(unsigned index) {
  const auto byte = [&](unsigned factor) { return static_cast<png_byte>(index * factor + 17); };
  return {byte(3), byte(5), byte(7)};
}

// A PNG of 4 x 5 pixels of any kind, by libpng itself.
struct AnyPng {
  AnyPng(int colour_type, int bits, bool interlaced = false, bool transparent = false,
         int palette_entries = 256)
      : colour(colour_type), depth(bits) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png, &file,
        [](png_structp p, png_bytep from, std::size_t n) {
          auto* to = static_cast<Bytes*>(png_get_io_ptr(p));
          to->insert(to->end(), from, from + n);
        },
        [](png_structp) {});
    png_set_IHDR(png, info, 5, 4, depth, colour, interlaced ? PNG_INTERLACE_ADAM7 : 0, 0, 0);
    if (colour == PNG_COLOR_TYPE_PALETTE) {
      std::vector<png_color> palette;
      const int entries = std::min(palette_entries, 1 << depth);
      for (int i = 0; i < entries; ++i) palette.push_back(palette_entry(static_cast<unsigned>(i)));
      png_set_PLTE(png, info, palette.data(), entries);
      png_set_check_for_invalid_index(png, 0);
    }
    const png_color_16 clear{};
    const png_byte clear_entry = 0;
    if (transparent) png_set_tRNS(png, info, &clear_entry, 1, &clear);
    png_write_info(png, info);
    packed = some_pixels({4, static_cast<std::int64_t>(row_bytes()), 1}, 3);
    std::vector<png_bytep> rows;
    for (std::size_t y = 0; y < 4; ++y) rows.push_back(packed.data() + y * row_bytes());
    png_write_image(png, rows.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
  }

  std::size_t samples() const {
    switch (colour) {
      case PNG_COLOR_TYPE_RGB: return 3;
      case PNG_COLOR_TYPE_GRAY_ALPHA: return 2;
      case PNG_COLOR_TYPE_RGB_ALPHA: return 4;
      default: return 1;
    }
  }
  std::size_t row_bytes() const {
    return (5 * samples() * static_cast<std::size_t>(depth) + 7) / 8;
  }

  int colour;
  int depth;
  Bytes packed;  // [4, row_bytes]
  Bytes file;
};

void put_word(Bytes& file, std::size_t at, std::uint32_t word) {
  for (std::size_t i = 0; i < 4; ++i)
    file[at + i] = static_cast<std::uint8_t>(word >> (24 - 8 * i));
}

// The header with another width and height, and a CRC that fits.
Bytes with_size(Bytes file, std::uint32_t width, std::uint32_t height) {
  put_word(file, 16, width);
  put_word(file, 20, height);
  put_word(file, 29, static_cast<std::uint32_t>(crc32(0, &file[12], 17)));
  return file;
}

TEST(Png, DecodesWhatItEncodes) {
  for (const Shape& shape : {Shape{4, 5, 3}, Shape{1, 1, 1}, Shape{32, 32, 3}, Shape{28, 28, 1}}) {
    const Bytes file = some_png(shape, 9);
    EXPECT_EQ(png_shape(file, "a.png"), shape);
    EXPECT_EQ(decode(file, shape), some_pixels(shape, 9));
  }
}

// Sample i of what AnyPng packs, of `depth` bits.
unsigned sample(const Bytes& packed, std::size_t row_bytes, std::size_t y, std::size_t i,
                unsigned depth) {
  const std::uint8_t* row = packed.data() + y * row_bytes;
  if (depth == 16) return unsigned{row[2 * i]} << 8 | row[2 * i + 1];
  const std::size_t bit = i * depth;
  return row[bit / 8] >> (8 - depth - bit % 8) & ((1U << depth) - 1);
}

// What the pixel is worth in 8 bits by the rules of png.h.
std::array<unsigned, 3> colour_of(const AnyPng& png, std::size_t y, std::size_t x) {
  const auto depth = static_cast<unsigned>(png.depth);
  const auto at = [&](std::size_t channel) {
    const unsigned value =
        sample(png.packed, png.row_bytes(), y, x * png.samples() + channel, depth);
    if (png.colour == PNG_COLOR_TYPE_PALETTE) return value;
    return depth == 16 ? value >> 8 : value * 255 / ((1U << depth) - 1);
  };
  if (png.colour == PNG_COLOR_TYPE_PALETTE) {
    const png_color entry = palette_entry(at(0));
    return {entry.red, entry.green, entry.blue};
  }
  if ((png.colour & PNG_COLOR_MASK_COLOR) == 0) return {at(0), at(0), at(0)};
  return {at(0), at(1), at(2)};
}

TEST(Png, DecodesEveryKind) {
  int kinds = 0;
  for (const int colour : {0, 2, 3, 4, 6}) {
    for (const int depth : {1, 2, 4, 8, 16}) {
      if (depth < 8 && colour != 0 && colour != 3) continue;
      if (depth == 16 && colour == 3) continue;
      for (const bool interlaced : {false, true}) {
        for (const bool transparent : {false, true}) {
          if (transparent && colour >= 4) continue;
          const AnyPng png(colour, depth, interlaced, transparent);
          const std::int64_t own = (colour & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
          EXPECT_EQ(png_shape(png.file, "a.png"), (Shape{4, 5, own}));
          for (std::int64_t channels = own; channels <= 3; channels += 2) {
            Bytes expected;
            for (std::size_t pixel = 0; pixel < 20; ++pixel) {
              const auto rgb = colour_of(png, pixel / 5, pixel % 5);
              for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
                expected.push_back(static_cast<std::uint8_t>(rgb[c]));
            }
            EXPECT_EQ(decode(png.file, {4, 5, channels}), expected)
                << "colour type " << colour << ", " << depth << " bits, interlaced " << interlaced;
            ++kinds;
          }
        }
      }
    }
  }
  EXPECT_EQ(kinds, 4 * (5 * 2 + 2 + 4) + 2 * (2 * 2 + 2));
}

// 0 to 255, of a kind that has_alpha(); a transparent colour is that of samples or an index of 0.
unsigned alpha_of(const AnyPng& png, std::size_t y, std::size_t x) {
  const auto depth = static_cast<unsigned>(png.depth);
  const auto raw = [&](std::size_t channel) {
    return sample(png.packed, png.row_bytes(), y, x * png.samples() + channel, depth);
  };
  if (png.colour >= 4) return raw(png.samples() - 1) >> (depth - 8);
  for (std::size_t channel = 0; channel < png.samples(); ++channel)
    if (raw(channel) != 0) return 255;
  return 0;
}

TEST(Png, BlendsOrRefusesTransparentPixelsOfEveryKind) {
  int refused = 0;
  for (const int colour : {0, 2, 3, 4, 6})
    for (const int depth : {1, 2, 4, 8, 16}) {
      if (depth < 8 && colour != 0 && colour != 3) continue;
      if (depth == 16 && colour == 3) continue;
      for (const bool interlaced : {false, true}) {
        const AnyPng png(colour, depth, interlaced, colour < 4);
        EXPECT_TRUE(has_alpha(png.file));
        EXPECT_EQ(has_alpha(AnyPng(colour, depth, interlaced).file), colour >= 4);
        bool has_clear = false;
        for (const Alpha alpha : {Alpha::white, Alpha::black}) {
          Bytes expected;
          for (std::size_t pixel = 0; pixel < 20; ++pixel) {
            const auto rgb = colour_of(png, pixel / 5, pixel % 5);
            const unsigned opaque = alpha_of(png, pixel / 5, pixel % 5);
            has_clear = has_clear || opaque < 255;
            for (const unsigned value : rgb) {
              const double background = alpha == Alpha::white ? 255 : 0;
              expected.push_back(static_cast<std::uint8_t>(
                  std::lround((value * opaque + background * (255 - opaque)) / 255)));
            }
          }
          Bytes pixels(60);
          decode_png(png.file, "a.png", {4, 5, 3}, pixels, alpha);
          EXPECT_EQ(pixels, expected) << "colour type " << colour << ", " << depth << " bits";
          // A set's samples take this route past the fast decoder.
          const Sample of_set{png.file, Encoding::png, {}, alpha};
          Scratch scratch;
          Bytes again(60);
          decode(of_set, "a.png", {4, 5, 3}, {0, 0, 4, 5}, 3, scratch, again);
          EXPECT_EQ(again, expected);
          EXPECT_TRUE(scratch.has_alpha);
        }
        Bytes pixels(60);
        const std::string refusal = message_of([&] {
          decode_png(png.file, "a.png", {4, 5, 3}, pixels, Alpha::refuse);
        });
        EXPECT_EQ(refusal.empty(), !has_clear);
        if (has_clear) {
          EXPECT_THAT(refusal, HasSubstr("is transparent (alpha "));
        }
        refused += has_clear ? 1 : 0;
      }
    }
  EXPECT_GT(refused, 8);
}

TEST(Png, RefusesWhatIsNoPng) {
  EXPECT_THAT(png_refusal({0xFF, 0xD8, 0xFF, 0xE0}),
              AllOf(HasSubstr("is not a PNG file"), HasSubstr("mogrify -format png")));
  EXPECT_THAT(png_refusal({}), HasSubstr("is empty"));
  Bytes file = some_png(small);
  file[24] = 4;
  EXPECT_THAT(png_refusal(file), HasSubstr("byte 24: a RGB PNG cannot have 4 bits per sample"));
  file[25] = 5;
  EXPECT_THAT(png_refusal(file), HasSubstr("byte 25: unknown colour type 5"));
}

TEST(Png, RefusesAnotherSizeWithTheFix) {
  EXPECT_THAT(png_refusal(some_png({5, 4, 3})),
              AllOf(HasSubstr("a.png: is 4 x 5 pixels, but must be 5 x 4"),
                    HasSubstr("--transforms"), HasSubstr("-resize '5x4!'")));
}

TEST(Png, RefusesColourInAGraySet) {
  EXPECT_THAT(
      png_refusal(some_png({4, 5, 3}), {4, 5, 1}),
      AllOf(HasSubstr("a.png: has colour (RGB PNG)"), HasSubstr("mogrify -colorspace Gray")));
  EXPECT_THAT(png_refusal(AnyPng(PNG_COLOR_TYPE_PALETTE, 8).file, {4, 5, 1}),
              HasSubstr("has colour (paletted PNG)"));
  std::vector<std::uint8_t> pixels(20);
  EXPECT_THAT(message_of([&] {
                decode_png(some_png({4, 5, 3}), "it's.png", {4, 5, 1}, pixels);
              }),
              HasSubstr("-colorspace Gray " + shell_word("it's.png") + " "));
}

// Index 1 of a palette of one colour: black, as other readers have it.
TEST(Png, ReadsAnIndexBeyondThePaletteAsBlack) {
  AnyPng png(PNG_COLOR_TYPE_PALETTE, 1, false, false, 1);
  const Bytes pixels = decode(png.file);
  for (std::size_t i = 0; i < 20; ++i) {
    const bool first = sample(png.packed, png.row_bytes(), i / 5, i % 5, 1) == 0;
    EXPECT_EQ(pixels[3 * i + 1], first ? palette_entry(0).green : 0) << i;
  }
}

TEST(Png, NamesEveryTruncation) {
  const Bytes whole = some_png(small);
  for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_THAT(png_refusal(cut), AllOf(HasSubstr("a.png: is truncated"), HasSubstr("copy")))
        << bytes;
  }
}

TEST(Png, NamesEveryFlippedBit) {
  const Bytes whole = some_png({32, 32, 3}, 5);
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 13) {
    Bytes broken = whole;
    broken[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_THAT(png_refusal(broken, {32, 32, 3}), HasSubstr("a.png: ")) << bit;
  }
}

// The chunk's CRC is right, so only zlib's checksum shows the damage.
TEST(Png, RefusesAWrongAdlerSum) {
  Bytes file = some_png(small);
  const std::size_t length = std::size_t{file[35]} << 8 | file[36];
  ASSERT_EQ(std::memcmp(&file[37], "IDAT", 4), 0);
  file[41 + length - 1] ^= 1;
  put_word(file, 41 + length,
           static_cast<std::uint32_t>(crc32(0, &file[37], static_cast<unsigned>(length + 4))));
  EXPECT_THAT(png_refusal(file), HasSubstr("broken PNG: IDAT: incorrect data check"));
}

TEST(Png, AllocatesNothingForALyingHeader) {
  const Bytes file = some_png(small);
  const auto refused = [&](std::uint32_t width, std::uint32_t height) {
    const Bytes lying = with_size(file, width, height);
    return message_of([&] { png_shape(lying, "a.png"); });
  };
  testing_support::forget_allocations();
  EXPECT_THAT(refused(9000, 9000), HasSubstr("bytes cannot hold them"));
  EXPECT_THAT(refused(0x7fffffff, 0x7fffffff), HasSubstr("1 to 16384 per side are allowed"));
  EXPECT_THAT(refused(0, 4), HasSubstr("claims 0 x 4"));
  EXPECT_LT(testing_support::largest_allocation_bytes(), 10'000U);
}

TEST(Png, IsSilentAboutWarnings) {
  Bytes file = some_png(small);
  Bytes odd{0, 0, 0, 1, 't', 'I', 'M', 'E', 0};  // a time of one byte
  odd.resize(13);
  put_word(odd, 9, static_cast<std::uint32_t>(crc32(0, &odd[4], 5)));
  file.insert(file.begin() + 33, odd.begin(), odd.end());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(decode(file), some_pixels(small, 0));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace warpstep::data

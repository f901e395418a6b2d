#include "data/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <cstring>

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

std::string refusal(const Bytes& file, const Shape& shape = small) {
  return message_of([&] { decode(file, shape); });
}

// A PNG of any kind, by libpng itself.
Bytes any_png(int colour, int depth, bool interlaced = false, bool transparent = false) {
  Bytes file;
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
  const std::array<png_color, 2> palette{};
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette.data(), 2);
  const png_color_16 clear{};
  if (transparent) png_set_tRNS(png, info, nullptr, 0, &clear);
  png_write_info(png, info);
  Bytes pixels = some_pixels(small, 3);
  pixels.resize(4096);
  if (colour == PNG_COLOR_TYPE_PALETTE) std::fill(pixels.begin(), pixels.end(), 0);
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < 4; ++y) rows.push_back(pixels.data() + y * 15);
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

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

TEST(Png, DecodesInterlacedFiles) {
  EXPECT_EQ(decode(any_png(PNG_COLOR_TYPE_RGB, 8, true)), some_pixels(small, 3));
}

TEST(Png, RefusesOtherKindsWithTheCommandThatConverts) {
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_RGB, 16)),
              AllOf(HasSubstr("a.png: is a 16-bit RGB PNG"), HasSubstr("mogrify -depth 8")));
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_GRAY, 4)), HasSubstr("4-bit gray"));
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_PALETTE, 8)),
              AllOf(HasSubstr("a paletted PNG"), HasSubstr("mogrify -define png:color-type=2")));
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_RGB_ALPHA, 8)),
              AllOf(HasSubstr("RGB with alpha"), HasSubstr("mogrify -alpha off")));
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_GRAY_ALPHA, 8)), HasSubstr("gray with alpha"));
  EXPECT_THAT(refusal(any_png(PNG_COLOR_TYPE_RGB, 8, false, true)),
              AllOf(HasSubstr("transparent colour"), HasSubstr("mogrify -alpha off")));
  EXPECT_THAT(refusal({0xFF, 0xD8, 0xFF, 0xE0}),
              AllOf(HasSubstr("is not a PNG file"), HasSubstr("mogrify -format png")));
  EXPECT_THAT(refusal({}), HasSubstr("is empty"));
}

TEST(Png, RefusesAnotherShape) {
  EXPECT_THAT(
      refusal(some_png({5, 4, 3})),
      AllOf(HasSubstr("a.png: is 5x4x3"), HasSubstr("is 4x5x3"), HasSubstr("-resize '5x4!'")));
  EXPECT_THAT(refusal(some_png({4, 5, 1})),
              AllOf(HasSubstr("4x5x1"), HasSubstr("-type TrueColor")));
}

TEST(Png, NamesEveryTruncation) {
  const Bytes whole = some_png(small);
  for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_THAT(refusal(cut), AllOf(HasSubstr("a.png: is truncated"), HasSubstr("copy"))) << bytes;
  }
}

TEST(Png, NamesEveryFlippedBit) {
  const Bytes whole = some_png({32, 32, 3}, 5);
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 13) {
    Bytes broken = whole;
    broken[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_THAT(refusal(broken, {32, 32, 3}), HasSubstr("a.png: ")) << bit;
  }
}

// The chunk's CRC fits, so only zlib's own checksum can tell.
TEST(Png, RefusesAWrongAdlerSum) {
  Bytes file = some_png(small);
  const std::size_t length = std::size_t{file[35]} << 8 | file[36];
  ASSERT_EQ(std::memcmp(&file[37], "IDAT", 4), 0);
  file[41 + length - 1] ^= 1;
  put_word(file, 41 + length,
           static_cast<std::uint32_t>(crc32(0, &file[37], static_cast<unsigned>(length + 4))));
  EXPECT_THAT(refusal(file), HasSubstr("broken PNG: IDAT: incorrect data check"));
}

TEST(Png, AllocatesNothingForALyingHeader) {
  const Bytes file = some_png(small);
  const auto refused = [&](std::uint32_t width, std::uint32_t height) {
    const Bytes lying = with_size(file, width, height);
    return message_of([&] { png_shape(lying, "a.png"); });
  };
  testing_support::forget_allocations();
  EXPECT_THAT(refused(9000, 9000), HasSubstr("bytes cannot hold them"));
  EXPECT_THAT(refused(0x7fffffff, 0x7fffffff), HasSubstr("allowed are 1 to 16384"));
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

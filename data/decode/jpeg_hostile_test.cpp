// Files that lie or are cut: a DataError that says so, or the pixels of the whole file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/decode/jpeg_testing.h"
#include "tests/data_testing.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Bytes;
using testing::decode_whole;
using testing::decode_window;
using ::testing::HasSubstr;
using testing::JpegKind;
using testing::message_of;
using testing::pixels_of;
using testing::routes;
using testing::Seed;
using testing::seeds;
using testing::some_jpeg;
using testing::window_of;

// The first position of the marker.
std::size_t find(const Bytes& file, std::uint8_t code) {
  for (std::size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == 0xff && file[i + 1] == code) return i;
  ADD_FAILURE() << "no marker " << int{code};
  return 0;
}

Bytes with(Bytes file, std::size_t at, std::initializer_list<std::uint8_t> bytes) {
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  return file;
}

Bytes without_segments(Bytes file, std::uint8_t code) {
  for (std::size_t i = 2; file[i + 1] != 0xda;) {
    const std::size_t bytes = 2U + (std::size_t{file[i + 2]} << 8 | file[i + 3]);
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(i);
    if (file[i + 1] == code)
      file.erase(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    else
      i += bytes;
  }
  return file;
}

Bytes with_size(const Bytes& file, int height, int width) {
  const std::size_t frame = find(file, 0xc0);
  return with(file, frame + 5,
              {static_cast<std::uint8_t>(height >> 8), static_cast<std::uint8_t>(height),
               static_cast<std::uint8_t>(width >> 8), static_cast<std::uint8_t>(width)});
}

std::string jpeg_refusal(const Bytes& file) {
  return message_of([&] { jpeg_shape(file, "a.jpg"); });
}

TEST(JpegHostile, NamesWhatIsNoJpegOrNotReadAndTheFix) {
  const Bytes file = some_jpeg({}, 32, 48);
  const std::size_t frame = find(file, 0xc0);
  EXPECT_THAT(jpeg_refusal({}), HasSubstr("a.jpg: is empty, expected a JPEG"));
  EXPECT_THAT(jpeg_refusal({0x89, 'P', 'N', 'G'}),
              AllOf(HasSubstr("is not a JPEG"), HasSubstr("mogrify -format jpg")));
  EXPECT_THAT(jpeg_refusal({0xff}), HasSubstr("is truncated"));
  EXPECT_THAT(jpeg_refusal(some_jpeg({.cmyk = true}, 32, 48)),
              AllOf(HasSubstr("CMYK or YCCK"), HasSubstr("mogrify -colorspace sRGB")));
  EXPECT_THAT(jpeg_refusal(some_jpeg({.arithmetic = true}, 32, 48)),
              HasSubstr("is an arithmetic-coded"));
  EXPECT_THAT(jpeg_refusal(with(file, frame + 1, {0xc3})), HasSubstr("is a lossless JPEG"));
  EXPECT_THAT(jpeg_refusal(with(file, frame + 1, {0xc5})), HasSubstr("is a hierarchical JPEG"));
  EXPECT_THAT(jpeg_refusal(with(file, frame + 4, {12})),
              AllOf(HasSubstr("is a 12-bit JPEG"), HasSubstr("-depth 8")));
  EXPECT_THAT(jpeg_refusal(with(file, frame + 9, {2})), HasSubstr("a frame header of 17 bytes"));
  EXPECT_THAT(jpeg_refusal(with(file, frame + 11, {0x50})), HasSubstr("sampling factors 5 x 0"));
  EXPECT_THAT(jpeg_refusal(with(file, 2, {0})),
              HasSubstr("byte 2: is a broken JPEG: 0x00 instead of a marker"));
  EXPECT_THAT(jpeg_refusal(with(file, 4, {0, 1})), HasSubstr("a segment of 1 bytes"));
  EXPECT_THAT(jpeg_refusal(with(file, 3, {0xc8})), HasSubstr("marker 0xffc8 is not allowed"));
  EXPECT_THAT(jpeg_refusal(with(file, 3, {0xda})), HasSubstr("a scan before the frame header"));
  EXPECT_THAT(jpeg_refusal(with(file, find(file, 0xda) + 4, {4})),
              HasSubstr("a scan header of 12 bytes"));
  Bytes twice = file;
  twice.insert(twice.begin() + 2, file.begin() + static_cast<std::ptrdiff_t>(frame),
               file.begin() + static_cast<std::ptrdiff_t>(frame) + 19);
  EXPECT_THAT(jpeg_refusal(twice), HasSubstr("it has two frames"));
}

TEST(JpegHostile, RefusesSizesThatTheFileCannotHold) {
  const Bytes file = some_jpeg({}, 32, 48);
  JpegDecoder decoder;
  testing_support::forget_allocations();
  EXPECT_THAT(jpeg_refusal(with_size(file, 0, 48)), HasSubstr("claims 48 x 0 pixels; 1 to"));
  EXPECT_THAT(jpeg_refusal(with_size(file, 32, 16385)), HasSubstr("claims 16385 x 32"));
  for (const JpegRoute route : {JpegRoute::full, JpegRoute::partial, JpegRoute::seek}) {
    EXPECT_THAT(message_of([&] {
                  decode_window(decoder, with_size(file, 16384, 16384), {0, 0, 9, 9}, 3, route);
                }),
                HasSubstr("claims 16384 x 16384 pixels, but"));
  }
  EXPECT_THAT(message_of([&] { make_seekable(with_size(file, 4000, 16384), "a.jpg"); }),
              HasSubstr("cannot hold them"));
  // What passes is bounded by the file: 2 bits a block.
  Bytes long_file = with_size(file, 16, 16384);
  long_file.resize(4000);
  decode_window(decoder, file, {0, 0, 9, 9}, 3, JpegRoute::full);
  EXPECT_THAT(message_of([&] {
                decode_window(decoder, long_file, {0, 0, 9, 9}, 3, JpegRoute::full);
              }),
              HasSubstr("is a broken JPEG: Corrupt JPEG data: premature end of data segment"));
  EXPECT_LT(testing_support::largest_allocation_bytes(), 100'000U);
}

TEST(JpegHostile, BoundsWhatSeveralScansMayTake) {
  Bytes file = some_jpeg({.progressive = true}, 32, 48);
  file = with(file, find(file, 0xc2) + 5, {0x40, 0, 0x40, 0});
  file.resize(1 << 20);
  EXPECT_THAT(jpeg_refusal(file),
              AllOf(HasSubstr("need 768 MiB of coefficients; at most 512 are allowed"),
                    HasSubstr("mogrify -interlace none")));
  JpegDecoder decoder;
  decode_whole(decoder, some_jpeg({.progressive = true, .single_scans = 30}, 32, 48), 3);
  EXPECT_THAT(message_of([&] {
                decode_whole(decoder, some_jpeg({.progressive = true, .single_scans = 40}, 32, 48),
                             3);
              }),
              HasSubstr("it has more than 100 scans"));
}

TEST(JpegHostile, RefusesFilesInWhichAComponentHasNoScan) {
  JpegDecoder decoder;
  for (const JpegKind& kind :
       {JpegKind{.separate_scans = true}, JpegKind{.progressive = true, .single_scans = 3}}) {
    Bytes file = some_jpeg(kind, 32, 48);
    decode_whole(decoder, file, 3);
    const std::size_t first = find(file, 0xda);
    Bytes rest(file.begin() + static_cast<std::ptrdiff_t>(first) + 2, file.end());
    file.resize(first + 2 + std::min(find(rest, 0xda), find(rest, 0xc4)));
    file.insert(file.end(), {0xff, 0xd9});
    EXPECT_THAT(message_of([&] { decode_whole(decoder, file, 3); }),
                HasSubstr("before every component has a scan"));
  }
}

// libjpeg-turbo keeps tables; a file must not use those of the file before.
TEST(JpegHostile, TakesNoTablesFromAnotherFile) {
  for (const JpegKind& kind : {JpegKind{}, JpegKind{.progressive = true}}) {
    const Bytes file = some_jpeg(kind, 32, 48);
    JpegDecoder decoder;
    decode_whole(decoder, file, 3);
    EXPECT_THAT(message_of([&] { decode_whole(decoder, without_segments(file, 0xc4), 3); }),
                HasSubstr("it lacks a Huffman table"));
    EXPECT_THAT(message_of([&] { decode_whole(decoder, without_segments(file, 0xdb), 3); }),
                AnyOf(HasSubstr("it lacks a quantization table"), HasSubstr("Quantization table")));
    decode_whole(decoder, file, 3);
  }
}

TEST(JpegHostile, TruncatedFilesAreNamedOrGiveTheSamePixels) {
  JpegDecoder decoder;
  for (const Seed& seed : seeds()) {
    const Bytes whole = decode_whole(decoder, seed.file, 3);
    const Window all{0, 0, seed.height, seed.width};
    const Window window{10, 20, 13, 17};
    for (std::size_t bytes = 0; bytes < seed.file.size(); ++bytes) {
      const Bytes cut(seed.file.begin(), seed.file.begin() + static_cast<std::ptrdiff_t>(bytes));
      std::string message;
      ASSERT_FALSE(pixels_of(decoder, cut, all, JpegRoute::full, &message)) << seed.name << bytes;
      ASSERT_THAT(message, AnyOf(HasSubstr("a.jpg: is truncated"), HasSubstr("a.jpg: is empty"),
                                 HasSubstr("cannot hold them")));
      for (const JpegRoute route : routes) {
        const auto got = pixels_of(decoder, cut, window, route);
        if (!got) continue;
        ASSERT_TRUE(*got == window_of(whole, seed.width, 3, window)) << seed.name << bytes;
      }
    }
  }
}

// Damage after the last row is found when everything is decoded; no window depends on it.
TEST(JpegHostile, FullRouteReadsToTheEndOfTheImage) {
  JpegDecoder decoder;
  Bytes file = some_jpeg({}, 32, 48);
  file.insert(file.end() - 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_THAT(message_of([&] { decode_whole(decoder, file, 3); }),
              HasSubstr("extraneous bytes before marker"));
  decode_window(decoder, file, {20, 20, 12, 28}, 3, JpegRoute::partial);
}

}  // namespace
}  // namespace warpstep::data

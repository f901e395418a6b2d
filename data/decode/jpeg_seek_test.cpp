// Restart markers: what is written with them is the same image, and any window of it can be had
// from its intervals alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "data/decode/jpeg_testing.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::decode_whole;
using testing::decode_window;
using testing::every_kind;
using ::testing::HasSubstr;
using testing::JpegKind;
using testing::message_of;
using testing::some_jpeg;
using testing::some_window;
using testing::window_of;

struct Size {
  std::int64_t height, width;
};

void expect_exact_windows(const Bytes& file, const Bytes& whole, const std::string& what,
                          std::uint32_t windows) {
  JpegDecoder decoder;
  const Shape shape = jpeg_shape(file, "a.jpg");
  for (std::uint32_t w = 0; w < windows; ++w) {
    const Window window = some_window(shape[0], shape[1], w);
    JpegRoute taken{};
    const Bytes got = decode_window(decoder, file, window, 3, JpegRoute::seek, &taken);
    ASSERT_EQ(taken, JpegRoute::seek) << what << " " << shape.text();
    ASSERT_TRUE(got == window_of(whole, shape[1], 3, window))
        << what << " " << shape.text() << ", " << window.height << " x " << window.width
        << " from row " << window.y << " column " << window.x;
  }
}

TEST(JpegSeek, SeekableFilesAreTheSameImageInEveryWindow) {
  JpegDecoder decoder;
  for (const JpegKind& kind : every_kind) {
    if (kind.progressive) continue;  // has no intervals to seek
    for (const Size& size :
         {Size{61, 97}, Size{64, 96}, Size{133, 75}, Size{33, 200}, Size{200, 400}}) {
      const Bytes plain = some_jpeg(kind, size.height, size.width);
      const Bytes file = make_seekable(plain, "a.jpg");
      EXPECT_FALSE(jpeg_traits(plain, "a.jpg").seekable);
      EXPECT_TRUE(jpeg_traits(file, "a.jpg").seekable);
      const Bytes whole = decode_whole(decoder, plain, 3);
      ASSERT_TRUE(decode_whole(decoder, file, 3) == whole) << kind.name;
      EXPECT_EQ(make_seekable(file, "a.jpg"), file) << kind.name;
      EXPECT_EQ(make_seekable(plain, "a.jpg"), file) << kind.name;
      expect_exact_windows(file, whole, kind.name, 100);
    }
  }
}

TEST(JpegSeek, TinyFilesAreTheSameImageInEveryWindow) {
  JpegDecoder decoder;
  for (const JpegKind& kind : every_kind) {
    if (kind.progressive) continue;  // has no intervals to seek
    for (std::int64_t height = 1; height <= 18; height += height < 5 ? 1 : 4) {
      for (std::int64_t width = 1; width <= 18; width += width < 6 ? 1 : 4) {
        const Bytes plain = some_jpeg(kind, height, width);
        expect_exact_windows(make_seekable(plain, "a.jpg"), decode_whole(decoder, plain, 3),
                             kind.name, 10);
      }
    }
  }
}

int interval_of(const Bytes& file) {
  for (std::size_t i = 0; i + 5 < file.size(); ++i)
    if (file[i] == 0xff && file[i + 1] == 0xdd) return file[i + 4] << 8 | file[i + 5];
  return 0;
}

TEST(JpegSeek, IntervalsDivideARow) {
  const auto interval = [](std::int64_t mcus) {
    return interval_of(make_seekable(some_jpeg({}, 32, 16 * mcus), "a.jpg"));
  };
  EXPECT_EQ(interval(1), 1);
  EXPECT_EQ(interval(4), 4);
  EXPECT_EQ(interval(50), 5);
  EXPECT_EQ(interval(12), 4);
  EXPECT_EQ(interval(9), 3);
  EXPECT_EQ(interval(14), 2);
  EXPECT_EQ(interval(7), 7);
  EXPECT_EQ(interval(49), 49);
}

TEST(JpegSeek, FilesOfOtherEncodersAreSeekableWhereIntervalsDivideARow) {
  JpegDecoder decoder;
  const auto seekable = [](int interval) {
    return jpeg_traits(some_jpeg({.restart_interval = interval}, 64, 192), "a.jpg").seekable;
  };
  for (const int interval : {1, 2, 3, 4, 6, 12}) {
    EXPECT_TRUE(seekable(interval)) << interval;
    const Bytes file = some_jpeg({.restart_interval = interval}, 64, 192);
    expect_exact_windows(file, decode_whole(decoder, file, 3), "interval", 40);
  }
  for (const int interval : {0, 5, 7, 24, 48}) EXPECT_FALSE(seekable(interval)) << interval;
  EXPECT_FALSE(
      jpeg_traits(some_jpeg({.restart_interval = 4, .progressive = true}, 64, 192), "a.jpg")
          .seekable);
  EXPECT_FALSE(
      jpeg_traits(some_jpeg({.restart_interval = 12, .separate_scans = true}, 64, 192), "a.jpg")
          .seekable);
}

// Inserts a segment of `bytes` bytes after the start of the image.
Bytes with_segment(Bytes file, std::uint8_t code, std::string_view begin, std::size_t bytes) {
  Bytes segment{0xff, code, static_cast<std::uint8_t>((bytes + 2) >> 8),
                static_cast<std::uint8_t>(bytes + 2)};
  segment.insert(segment.end(), begin.begin(), begin.end());
  segment.resize(bytes + 4, 7);
  file.insert(file.begin() + 2, segment.begin(), segment.end());
  return file;
}

bool holds(const Bytes& file, const Bytes& part) {
  return std::search(file.begin(), file.end(), part.begin(), part.end()) != file.end();
}

TEST(JpegSeek, KeepsTheOtherSegments) {
  JpegDecoder decoder;
  const Bytes plain = some_jpeg({}, 64, 96);
  Bytes tagged = with_segment(plain, 0xe1, std::string_view("Exif\0\0", 6), 40000);
  tagged = with_segment(tagged, 0xe2, "ICC_PROFILE", 600);
  tagged = with_segment(tagged, 0xfe, "a comment", 9);
  const Bytes file = make_seekable(tagged, "a.jpg");
  EXPECT_TRUE(holds(file, {'E', 'x', 'i', 'f', 0, 0, 7, 7}));
  EXPECT_TRUE(holds(file, {'I', 'C', 'C', '_', 'P', 'R', 'O', 'F', 'I', 'L', 'E', 7}));
  EXPECT_TRUE(holds(file, {'a', ' ', 'c', 'o', 'm', 'm', 'e', 'n', 't'}));
  EXPECT_TRUE(holds(file, {'J', 'F', 'I', 'F', 0}));
  EXPECT_GT(file.size(), 40600U);
  expect_exact_windows(file, decode_whole(decoder, plain, 3), "tagged", 50);
}

// Only the Adobe segment says that these three components are RGB: an excerpt must have it.
TEST(JpegSeek, KeepsTheColourTransform) {
  JpegDecoder decoder;
  Bytes rgb = some_jpeg({.rgb = true}, 64, 96);
  for (std::size_t i = 0; i + 1 < rgb.size(); ++i) {  // component names R, G, B say it, too
    const bool frame = rgb[i] == 0xff && rgb[i + 1] == 0xc0;
    const bool scan = rgb[i] == 0xff && rgb[i + 1] == 0xda;
    for (std::size_t c = 0; c < 3 && (frame || scan); ++c)
      rgb[i + (frame ? 10 + 3 * c : 5 + 2 * c)] = static_cast<std::uint8_t>(c + 1);
    if (scan) break;
  }
  ASSERT_TRUE(holds(rgb, {'A', 'd', 'o', 'b', 'e'}));
  const Bytes whole = decode_whole(decoder, rgb, 3);
  const Bytes file = make_seekable(with_segment(rgb, 0xe1, "Exif", 3000), "a.jpg");
  EXPECT_EQ(decode_whole(decoder, file, 3), whole);
  expect_exact_windows(file, whole, "Adobe RGB", 50);
}

TEST(JpegSeek, RefusesToMakeProgressiveFilesSeekable) {
  const Bytes file = some_jpeg({.progressive = true}, 64, 96);
  EXPECT_FALSE(jpeg_traits(file, "a.jpg").baseline);
  EXPECT_TRUE(jpeg_traits(some_jpeg({}, 64, 96), "a.jpg").baseline);
  EXPECT_THAT(message_of([&] { make_seekable(file, "a.jpg"); }),
              AllOf(HasSubstr("a.jpg: is not a baseline JPEG"), HasSubstr("jpegtran")));
  Bytes cut = some_jpeg({}, 64, 96);
  cut.resize(cut.size() / 2);
  EXPECT_THAT(
      message_of([&] { make_seekable(cut, "a.jpg"); }),
      HasSubstr("a.jpg: is truncated: the JPEG data ends at byte " + std::to_string(cut.size())));
}

// Not one marker too many, too few or out of order: else an interval may be another one.
TEST(JpegSeek, PicksNoIntervalsFromABrokenSequence) {
  const Bytes file = some_jpeg({.restart_interval = 1}, 64, 96);
  const auto seekable = [](const Bytes& f) { return jpeg_traits(f, "a.jpg").seekable; };
  ASSERT_TRUE(seekable(file));
  const auto at = [&](std::uint8_t code) {
    const Bytes wanted{0xff, code};
    return std::search(file.begin(), file.end(), wanted.begin(), wanted.end()) - file.begin();
  };
  Bytes swapped = file;
  std::swap(swapped[static_cast<std::size_t>(at(0xd2)) + 1],
            swapped[static_cast<std::size_t>(at(0xd3)) + 1]);
  EXPECT_FALSE(seekable(swapped));
  Bytes missing = file;
  missing.erase(missing.begin() + at(0xd2), missing.begin() + at(0xd2) + 2);
  EXPECT_FALSE(seekable(missing));
  Bytes padded = file;
  padded.insert(padded.begin() + at(0xd2), 0xff);
  EXPECT_FALSE(seekable(padded));
  Bytes endless = file;
  endless.resize(endless.size() - 2);
  EXPECT_FALSE(seekable(endless));
  Bytes short_of_rows = file;
  short_of_rows.erase(short_of_rows.begin() + at(0xd2), short_of_rows.end() - 2);
  EXPECT_FALSE(seekable(short_of_rows));
}

// A window's excerpt is small; an error in it is named by its place in the whole file.
TEST(JpegSeek, NamesTheByteOfTheWholeFile) {
  JpegDecoder decoder;
  const Bytes file = make_seekable(some_jpeg({.quality = 95}, 320, 320), "a.jpg");
  const std::size_t middle = file.size() / 2;
  Bytes broken = file;
  for (std::size_t i = middle; i < middle + 200; ++i)  // no code begins with 16 ones
    if (broken[i] != 0xff && broken[i - 1] != 0xff && broken[i + 1] != 0xff) broken[i] = 0xfe;
  const std::string message = message_of([&] {
    decode_window(decoder, broken, {130, 0, 60, 310}, 3, JpegRoute::seek);
  });
  const std::string_view before = "a.jpg: byte ";
  ASSERT_THAT(message, HasSubstr(std::string(before)));
  const std::size_t at = std::stoul(message.substr(before.size()));
  EXPECT_GT(at + 2000, middle) << message;
  EXPECT_LT(at, middle + 2000) << message;
}

}  // namespace
}  // namespace warpstep::data

// All routes give the pixels of a full decode, for every kind of file and every window.
#include "data/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/jpeg_testing.h"
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
using testing::scene;
using testing::some_jpeg;
using testing::some_window;
using testing::window_of;

struct Size {
  std::int64_t height, width;
};

// Compares all routes over `windows` windows of the file with a full decode of the same file.
void expect_equal_routes(const Bytes& file, const std::string& what, std::uint32_t windows) {
  JpegDecoder decoder;
  const Shape shape = jpeg_shape(file, "a.jpg");
  const Bytes whole = decode_whole(decoder, file, 3);
  for (std::uint32_t w = 0; w < windows; ++w) {
    const Window window = some_window(shape[0], shape[1], w);
    const Bytes expected = window_of(whole, shape[1], 3, window);
    for (const JpegRoute route :
         {JpegRoute::automatic, JpegRoute::full, JpegRoute::partial, JpegRoute::seek}) {
      ASSERT_TRUE(decode_window(decoder, file, window, 3, route) == expected)
          << what << " " << shape.text() << ", route " << static_cast<int>(route) << ", "
          << window.height << " x " << window.width << " from row " << window.y << " column "
          << window.x;
    }
  }
}

TEST(Jpeg, RoutesAreEqualOverKindsSizesAndWindows) {
  for (const JpegKind& kind : every_kind) {
    for (const Size& size : {Size{61, 97}, Size{64, 96}, Size{130, 75}, Size{33, 200}}) {
      SCOPED_TRACE(kind.name);
      expect_equal_routes(some_jpeg(kind, size.height, size.width), kind.name, 60);
    }
  }
}

TEST(Jpeg, RoutesAreEqualOnTinyImages) {
  for (const JpegKind& kind : every_kind) {
    for (std::int64_t height = 1; height <= 18; height += height < 5 ? 1 : 4) {
      for (std::int64_t width = 1; width <= 18; width += width < 6 ? 1 : 4)
        expect_equal_routes(some_jpeg(kind, height, width), kind.name, 12);
    }
  }
}

TEST(Jpeg, PartialIsExactFromEveryRowAndColumn) {
  JpegDecoder decoder;
  for (const JpegKind& kind : every_kind) {
    const Bytes file = some_jpeg(kind, 71, 83);
    const Bytes whole = decode_whole(decoder, file, 3);
    const auto check = [&](const Window& window) {
      JpegRoute taken{};
      const Bytes got = decode_window(decoder, file, window, 3, JpegRoute::partial, &taken);
      EXPECT_EQ(taken, JpegRoute::partial);
      ASSERT_TRUE(got == window_of(whole, 83, 3, window))
          << kind.name << " from row " << window.y << ", column " << window.x;
    };
    for (std::int64_t y = 0; y < 71; ++y) check({y, y % 83, std::min<std::int64_t>(9, 71 - y), 1});
    for (std::int64_t x = 0; x < 83; ++x) check({x % 71, x, 1, std::min<std::int64_t>(6, 83 - x)});
  }
}

TEST(Jpeg, TakesTheRouteThatTheFileAllows) {
  JpegDecoder decoder;
  const auto taken = [&](const Bytes& file, const Window& window, JpegRoute route) {
    JpegRoute used{};
    decode_window(decoder, file, window, 3, route, &used);
    return used;
  };
  const Bytes plain = some_jpeg({}, 96, 160);
  const Bytes marked = make_seekable(plain, "a.jpg");
  const Window part{40, 40, 16, 16};
  const Window whole{0, 0, 96, 160};
  const Window nearly{1, 1, 94, 158};
  EXPECT_EQ(taken(plain, part, JpegRoute::automatic), JpegRoute::partial);
  EXPECT_EQ(taken(plain, part, JpegRoute::seek), JpegRoute::partial);
  EXPECT_EQ(taken(plain, part, JpegRoute::full), JpegRoute::full);
  EXPECT_EQ(taken(plain, whole, JpegRoute::automatic), JpegRoute::full);
  EXPECT_EQ(taken(marked, part, JpegRoute::automatic), JpegRoute::seek);
  EXPECT_EQ(taken(marked, part, JpegRoute::partial), JpegRoute::partial);
  EXPECT_EQ(taken(marked, nearly, JpegRoute::automatic), JpegRoute::partial);
  EXPECT_EQ(taken(marked, nearly, JpegRoute::seek), JpegRoute::seek);
  EXPECT_EQ(taken(marked, whole, JpegRoute::automatic), JpegRoute::full);
}

// Without the last refinements libjpeg-turbo smooths across blocks: only all of it is exact.
TEST(Jpeg, UnrefinedProgressiveFilesAreDecodedWhole) {
  const Bytes file = some_jpeg({.progressive = true}, 80, 112);
  std::vector<std::size_t> scans;
  for (std::size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == 0xff && (file[i + 1] == 0xda || file[i + 1] == 0xc4)) scans.push_back(i);
  int smoothed = 0;
  JpegDecoder decoder;
  for (const std::size_t end : scans) {
    Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(end));
    cut.insert(cut.end(), {0xff, 0xd9});
    Bytes whole;
    try {
      whole = decode_whole(decoder, cut, 3);
    } catch (const DataError&) {
      continue;  // before the first scan's end
    }
    JpegRoute taken{};
    const Window window{16, 32, 16, 16};
    const Bytes got = decode_window(decoder, cut, window, 3, JpegRoute::automatic, &taken);
    EXPECT_EQ(taken, JpegRoute::full);
    EXPECT_EQ(got, window_of(whole, 112, 3, window));
    ++smoothed;
  }
  EXPECT_GT(smoothed, 5);
}

TEST(Jpeg, GivesGrayAsOneOrThreeChannels) {
  JpegDecoder decoder;
  const Bytes gray = some_jpeg({.channels = 1, .across = {1}, .down = {1}}, 20, 30);
  EXPECT_EQ(jpeg_shape(gray, "a.jpg"), (Shape{20, 30, 1}));
  const Bytes one = decode_whole(decoder, gray, 1);
  const Bytes three = decode_whole(decoder, gray, 3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(three[i * 3], one[i]);
    ASSERT_EQ(three[i * 3 + 1], one[i]);
    ASSERT_EQ(three[i * 3 + 2], one[i]);
  }
  EXPECT_THAT(message_of([&] { decode_whole(decoder, some_jpeg({}, 20, 30), 1); }),
              AllOf(HasSubstr("a.jpg: is a colour JPEG"), HasSubstr("-colorspace Gray")));
}

TEST(Jpeg, RefusesAWindowOrMemoryThatDoesNotFit) {
  JpegDecoder decoder;
  const Bytes file = some_jpeg({}, 20, 30);
  Bytes pixels(300);
  const auto refusal = [&](const Window& window, std::int64_t channels) {
    return message_of<UsageError>([&] { decoder.decode(file, "a.jpg", window, channels, pixels); });
  };
  EXPECT_THAT(refusal({0, 0, 10, 11}, 3), HasSubstr("300 bytes for a window of 10 x 11 x 3"));
  EXPECT_THAT(refusal({11, 0, 10, 10}, 3), HasSubstr("of 20x30x3"));
  EXPECT_THAT(refusal({0, 0, 10, 15}, 2), HasSubstr("x 2"));
}

TEST(Jpeg, EncodesCloseToTheImageAndAlwaysAlike) {
  JpegDecoder decoder;
  for (const std::int64_t channels : {1, 3}) {
    Bytes pixels;
    for (int y = 0; y < 40; ++y)
      for (int x = 0; x < 50; ++x)
        for (int c = 0; c < channels; ++c)
          pixels.push_back(static_cast<std::uint8_t>(60 + 2 * x + y + 20 * c));
    const Bytes file = encode_jpeg({40, 50, channels}, pixels, 95);
    EXPECT_EQ(file, encode_jpeg({40, 50, channels}, pixels, 95));
    EXPECT_LT(encode_jpeg({40, 50, channels}, pixels, 20).size(), file.size());
    EXPECT_EQ(jpeg_shape(file, "a.jpg"), (Shape{40, 50, channels}));
    const Bytes got = decode_whole(decoder, file, channels);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], pixels[i], 6) << i;
  }
  EXPECT_THAT(message_of<UsageError>([] {
                encode_jpeg({2, 2, 3}, Bytes(11));
              }),
              HasSubstr("11 bytes for an image of 2x2x3"));
  EXPECT_THAT(message_of<UsageError>([] {
                encode_jpeg({2, 2, 3}, Bytes(12), 0);
              }),
              HasSubstr("quality 0"));
}

}  // namespace
}  // namespace warpstep::data

#include "data/decode/exif.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/decode/jpeg.h"
#include "data/transforms/statistics.h"
#include "tests/data_exif.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using testing::exif_segment;
using testing::with_segment;
using Bytes = std::vector<std::uint8_t>;

Bytes plain_jpeg() {
  const Shape shape{8, 12, 3};
  return encode_jpeg(shape, testing::some_pixels(shape, 1), 90);
}

TEST(Exif, OrientationOfEitherByteOrder) {
  EXPECT_EQ(exif_orientation(plain_jpeg()), 1);
  for (const bool little : {false, true})
    for (std::uint16_t value = 0; value < 10; ++value) {
      const int expected = value >= 1 && value <= 8 ? value : 1;
      const Bytes file = with_segment(plain_jpeg(), exif_segment(value, little));
      EXPECT_EQ(exif_orientation(file), expected) << little;
      // Behind another APP1 (XMP), and with JFIF's segment before it.
      const Bytes other{0xff, 0xe1, 0, 8, 'h', 't', 't', 'p', ':', 0};
      EXPECT_EQ(exif_orientation(with_segment(file, other)), expected);
      EXPECT_EQ(jpeg_shape(file, "a.jpg"), jpeg_shape(plain_jpeg(), "a.jpg"));
    }
}

TEST(Exif, AcceptsAnyBytes) {
  for (const bool little : {false, true}) {
    const Bytes segment = exif_segment(6, little), file = with_segment(plain_jpeg(), segment);
    for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(exif_orientation(cut), bytes < 2 + segment.size() ? 1 : 6) << bytes;
    }
    // A segment that ends early, though the file continues.
    for (std::size_t bytes = 4; bytes < segment.size(); ++bytes) {
      Bytes cut(segment.begin(), segment.begin() + static_cast<std::ptrdiff_t>(bytes));
      cut[2] = 0;
      cut[3] = static_cast<std::uint8_t>(bytes - 2);
      const bool complete = bytes >= segment.size() - 6;  // its value is there, not what follows
      EXPECT_EQ(exif_orientation(with_segment(plain_jpeg(), cut)), complete ? 6 : 1) << bytes;
    }
    for (std::size_t at = 4; at < segment.size(); ++at)
      for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
        Bytes other = segment;
        other[at] = static_cast<std::uint8_t>(value);
        const int found = exif_orientation(with_segment(plain_jpeg(), other));
        EXPECT_TRUE(found >= 1 && found <= 8);
      }
  }
}

TEST(Exif, IsCountedWhereImagesAreMeasured) {
  testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/a");
  for (std::uint16_t i = 1; i <= 5; ++i)
    testing::put(folder / fmt::format("train/a/{}.jpg", i),
                 i == 5 ? plain_jpeg() : with_segment(plain_jpeg(), exif_segment(i, i % 2 == 0)));
  testing::put(folder / "train/a/6.png", testing::some_png({8, 12, 3}));
  const auto set = open(folder.path(), Split::train);
  EXPECT_EQ(channel_statistics(*set).with_orientation, 3U);
  EXPECT_EQ(channel_statistics(*set).samples, 6U);
}

}  // namespace
}  // namespace warpstep::data

#include <gtest/gtest.h>

#include "data/transforms/develop.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

struct Golden {
  Shape from;
  std::int64_t height, width;
  std::uint64_t hash;  // FNV-1a of the pixels
};

// Pillow 10.4: Image.fromarray(some_pixels(from, 3)).resize((width, height), Image.BILINEAR).
const Golden golden[] = {
    {{20, 30, 3}, 7, 11, 0x9c6c276bbbaa6233},  {{20, 30, 3}, 45, 31, 0xe644069f7d65f4eb},
    {{33, 17, 1}, 16, 16, 0xf508a85c936bd8b3}, {{64, 48, 3}, 64, 10, 0x2d8ee502bec5a77a},
    {{9, 9, 3}, 27, 5, 0xa3d76545409ace11},    {{100, 75, 3}, 1, 1, 0xa327fb196f0b3cb9},
    {{1, 1, 3}, 4, 4, 0xde9750f2c51c3e55},     {{50, 40, 3}, 49, 41, 0x3998b462471d11b3}};

std::vector<std::uint8_t> resized(Resampler& resampler, const Golden& g, const Window& out) {
  const auto image = testing::some_pixels(g.from, 3);
  std::vector<std::uint8_t> pixels(idx(out.height * out.width * g.from[2]));
  resampler.bilinear(image, g.from, g.height, g.width, out, pixels);
  return pixels;
}

TEST(Resample, GivesPillowsPixels) {
  Resampler resampler;
  for (const Golden& g : golden) {
    Hash hash;
    hash.add(std::span<const std::uint8_t>(resized(resampler, g, {0, 0, g.height, g.width})));
    EXPECT_EQ(hash.value(), g.hash) << g.from.text() << " to " << g.height << " x " << g.width;
  }
}

TEST(Resample, OfAWindowIsTheWindowOfTheWhole) {
  Resampler resampler;
  for (const Golden& g : golden) {
    const auto whole = resized(resampler, g, {0, 0, g.height, g.width});
    const Window out{g.height / 3, g.width / 4, (g.height + 1) / 2, (g.width + 2) / 3};
    const auto part = resized(resampler, g, out);
    const std::size_t bytes = idx(out.width * g.from[2]);
    for (std::size_t y = 0; y < idx(out.height); ++y)
      EXPECT_TRUE(std::equal(
          part.begin() + static_cast<std::ptrdiff_t>(y * bytes),
          part.begin() + static_cast<std::ptrdiff_t>((y + 1) * bytes),
          whole.begin() + ((out.y + static_cast<std::int64_t>(y)) * g.width + out.x) * g.from[2]));
  }
}

}  // namespace
}  // namespace warpstep::data

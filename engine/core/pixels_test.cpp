#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/pixels_variants.h"
#include "engine/core/types.h"

namespace warpstep {
namespace {

struct PixelBatch {
  PixelPlan plan;
  std::vector<RowPlan> rows;
  ImageExtent source, out;
  std::vector<std::uint8_t> images;
};

bool covers(const PixelBatch& b, const RowPlan& row, std::int64_t y, std::int64_t x) {
  const auto drawn = [&](std::int64_t i, std::int64_t j) {
    return i >= 0 && i < b.out.height && j >= 0 && j < b.out.width &&
           is_drawn(b.plan, row, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j),
                    static_cast<std::uint32_t>(b.out.width));
  };
  if (drawn(y, x)) return true;
  return b.plan.dilate &&
         (drawn(y - 1, x) || drawn(y + 1, x) || drawn(y, x - 1) || drawn(y, x + 1));
}

// Pixel (i, j) before it is mixed, by the header's formula.
std::array<float, 3> pixel(const PixelBatch& b, const RowPlan& row, std::int64_t i,
                           std::int64_t j) {
  const std::int64_t y = row.y + i, x = row.x + (row.mirrored != 0 ? b.out.width - 1 - j : j);
  const bool inside = y >= 0 && y < b.source.height && x >= 0 && x < b.source.width;
  const bool covered = b.plan.mask_threshold > 0 && covers(b, row, i, j);
  std::array<float, 3> result{};
  for (std::size_t o = 0; o < idx(b.plan.channels); ++o) {
    float sum = b.plan.shift[o];
    for (std::size_t c = 0; c < idx(b.plan.channels); ++c) {
      const std::size_t at =
          idx((row.source * b.source.height + y) * b.source.width + x) * idx(b.plan.channels) + c;
      const float byte = inside ? b.images[at] : 0;
      const float v = covered ? 0 : std::fma(row.gain, byte, row.offset);
      sum = std::fma(b.plan.m[o][c], v, sum);
    }
    result[o] = sum;
  }
  return result;
}

std::vector<float> expected(const PixelBatch& b, std::size_t r) {
  std::vector<float> y;
  const RowPlan& row = b.rows[r];
  for (std::int64_t i = 0; i < b.out.height; ++i)
    for (std::int64_t j = 0; j < b.out.width; ++j) {
      std::array<float, 3> own = pixel(b, row, i, j);
      if (b.plan.mix && row.weight < 1) {
        const std::array<float, 3> z = pixel(b, b.rows[row.pair], i, j);
        const bool inside = i >= row.top && i < row.bottom && j >= row.left && j < row.right;
        for (std::size_t o = 0; o < 3; ++o)
          if (!row.is_cut())
            own[o] = std::fma(row.weight, own[o] - z[o], z[o]);
          else if (inside)
            own[o] = z[o];
      }
      y.insert(y.end(), own.begin(), own.begin() + b.plan.channels);
    }
  return y;
}

// Four rows of a set of four images: one at the image's corner; one that is cut off at the top and
// on the left, mirrored, and mixed with the first; one that is cut off at the bottom and on the
// right; one with a box of the second.
PixelBatch batch_of(int channels, ImageExtent source, ImageExtent out) {
  PixelBatch b{
      .plan = {.channels = channels}, .rows = {}, .source = source, .out = out, .images = {}};
  for (std::size_t o = 0; o < idx(channels); ++o) {
    b.plan.shift[o] = 0.3F - 0.4F * static_cast<float>(o);
    for (std::size_t c = 0; c < idx(channels); ++c)
      b.plan.m[o][c] = 0.0041F * static_cast<float>(1 + o) - 0.0013F * static_cast<float>(c * c);
  }
  for (std::size_t i = 0; i < idx(4 * source.height * source.width * channels); ++i)
    b.images.push_back(static_cast<std::uint8_t>(draw(3, Purpose::synthetic, 0, i)[0]));
  b.rows = {{.source = 2, .key = {7, 8}, .counter = {1, 2}},
            {.source = 0,
             .y = -2,
             .x = -3,
             .mirrored = 1,
             .gain = 1.3F,
             .offset = -20.5F,
             .key = {7, 8},
             .counter = {1, 3},
             .pair = 0,
             .weight = 0.7F},
            {.source = 3,
             .y = 3,
             .x = 2,
             .mirrored = 1,
             .gain = 0.6F,
             .offset = 4,
             .key = {7, 8},
             .counter = {2, 2},
             .pair = 1,
             .weight = 0.25F},
            {.source = 1,
             .key = {7, 8},
             .counter = {2, 1},
             .pair = 1,
             .weight = 0.5F,
             .top = 1,
             .left = static_cast<std::int16_t>(out.width / 3),
             .bottom = static_cast<std::int16_t>(out.height),
             .right = static_cast<std::int16_t>(out.width - 1)}};
  return b;
}

std::vector<std::uint32_t> bits(const std::vector<float>& numbers) {
  std::vector<std::uint32_t> all;
  for (const float number : numbers) all.push_back(std::bit_cast<std::uint32_t>(number));
  return all;
}

void expect_formula(const PixelBatch& b) {
  for (std::size_t r = 0; r < b.rows.size(); ++r) {
    const std::vector<std::uint32_t> wanted = bits(expected(b, r));
    for (const PixelsVariant& variant : pixels_variants()) {
      std::vector<float> y(wanted.size(), -1.0F);
      variant.apply(b.plan, b.rows, r, b.images.data(), b.source, b.out, y.data());
      EXPECT_EQ(bits(y), wanted) << name(variant.isa) << ", row " << r;
    }
  }
}

// Less than a vector, whole words of mask bits, one pixel more, and more than a span of a row.
const std::vector<ImageExtent> extents{{1, 1},  {5, 7},   {3, 16}, {4, 64},
                                       {3, 65}, {2, 200}, {2, 577}};

TEST(Pixels, FollowTheFormulaInEveryVariant) {
  for (const int channels : {1, 2, 3})
    for (const ImageExtent out : extents)
      for (const std::uint32_t threshold : {0U, 16384U, 65536U})
        for (const bool dilate : {false, true})
          for (const bool mix : {false, true}) {
            PixelBatch b = batch_of(channels, {out.height + 1, out.width + 1}, out);
            b.plan.mask_threshold = threshold;
            b.plan.dilate = dilate;
            b.plan.mix = mix;
            SCOPED_TRACE(testing::Message()
                         << out.height << "x" << out.width << "x" << channels << ", threshold "
                         << threshold << (dilate ? ", dilated" : "") << (mix ? ", mixed" : ""));
            expect_formula(b);
          }
}

TEST(Pixels, OfAWindowFarOutsideAreBytesOfZero) {
  PixelBatch b = batch_of(3, {4, 4}, {3, 70});
  for (RowPlan& row : b.rows) {
    row.y = -32768;
    row.x = 32767;
  }
  expect_formula(b);
  std::vector<float> y(3 * 70 * 3);
  apply_pixels(b.plan, b.rows, 0, b.images.data(), b.source, b.out, y.data());
  EXPECT_EQ(y[0], b.plan.shift[0]);
}

// A quarter is drawn; a pixel stays if neither it nor one of its 4 neighbours is.
TEST(Pixels, MasksCoverTheRequestedShare) {
  PixelBatch b = batch_of(1, {256, 256}, {256, 256});
  b.plan.mask_threshold = 16384;
  b.plan.shift[0] = 0;
  std::fill(b.images.begin(), b.images.end(), std::uint8_t{255});
  const auto share = [&](bool dilate) {
    b.plan.dilate = dilate;
    std::vector<float> y(256 * 256);
    apply_pixels(b.plan, b.rows, 0, b.images.data(), b.source, b.out, y.data());
    return static_cast<double>(std::count(y.begin(), y.end(), 0.0F)) / (256 * 256);
  };
  EXPECT_NEAR(share(false), 0.25, 0.01);
  EXPECT_NEAR(share(true), 1 - std::pow(0.75, 5), 0.01);
}

TEST(Pixels, HaveOneToThreeChannels) {
  PixelBatch b = batch_of(3, {4, 4}, {4, 4});
  b.plan.channels = 4;
  std::vector<float> y(64);
  EXPECT_THROW(apply_pixels(b.plan, b.rows, 0, b.images.data(), b.source, b.out, y.data()),
               ShapeError);
}

TEST(Pixels, HaveAPlainVariantEverywhere) {
  EXPECT_EQ(pixels_variants().back().isa, CpuIsa::base);
}

}  // namespace
}  // namespace warpstep

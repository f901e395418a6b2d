#include <gtest/gtest.h>

#include <bit>

#include "engine/core/error.h"
#include "kernels/pixels/pixels.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::Floats;
using testing::settled;

struct Batch {
  AugmentShape shape;
  std::vector<RowPlan> rows;
  std::vector<std::uint8_t> images;
};

// Rows of four images: whole, cut off on every side, mirrored, jittered, mixed, with a box.
Batch batch_of(int channels, ImageExtent source, ImageExtent out, int pitch) {
  Batch b{.shape = {.rows = 5, .source = source, .out = out, .pitch = pitch, .plan = {channels}},
          .rows = {},
          .images = {}};
  for (std::size_t o = 0; o < idx(channels); ++o) {
    b.shape.plan.shift[o] = 0.3F - 0.4F * static_cast<float>(o);
    for (std::size_t c = 0; c < idx(channels); ++c)
      b.shape.plan.m[o][c] = 0.0041F * static_cast<float>(1 + o) - 0.0013F * static_cast<float>(c);
  }
  for (std::size_t i = 0; i < idx(4 * source.height * source.width * channels); ++i)
    b.images.push_back(static_cast<std::uint8_t>(draw(3, Purpose::synthetic, 0, i)[0]));
  for (std::uint32_t r = 0; r < 5; ++r) {
    const auto place = static_cast<std::int16_t>(4 * static_cast<int>(r) - 8);
    b.rows.push_back({.source = (3 * r + 1) % 4,
                      .y = place,
                      .x = static_cast<std::int16_t>(-place / 2),
                      .mirrored = r % 2,
                      .gain = 0.7F + 0.2F * static_cast<float>(r),
                      .offset = 11.3F - 6 * static_cast<float>(r),
                      .key = {7, 8},
                      .counter = {1, r},
                      .pair = (r + 2) % 5,
                      .weight = r == 3 ? 1 : 0.17F * static_cast<float>(r)});
  }
  b.rows[2].top = 1;  // a box for its pair, through several tiles
  b.rows[2].bottom = static_cast<std::int16_t>(out.height);
  b.rows[2].left = static_cast<std::int16_t>(out.width / 5);
  b.rows[2].right = static_cast<std::int16_t>(out.width - 1);
  return b;
}

// What the CPU makes of it, with channels of zeros after the plan's, rounded to `dtype`.
std::vector<float> expected(const Batch& b, DType dtype) {
  const AugmentShape& s = b.shape;
  const std::size_t pixels = idx(s.out.height * s.out.width), channels = idx(s.plan.channels);
  std::vector<float> padded(idx(s.rows) * pixels * idx(s.pitch)), one(pixels * channels);
  for (std::size_t r = 0; r < idx(s.rows); ++r) {
    apply_pixels(s.plan, b.rows, r, b.images.data(), s.source, s.out, one.data());
    for (std::size_t i = 0; i < one.size(); ++i)
      padded[(r * pixels + i / channels) * idx(s.pitch) + i % channels] = one[i];
  }
  return Floats(dtype, padded).values();
}

std::vector<std::uint32_t> bits(const std::vector<float>& numbers) {
  std::vector<std::uint32_t> all;
  for (const float number : numbers) all.push_back(std::bit_cast<std::uint32_t>(number));
  return all;
}

class PixelsCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  std::vector<float> run(const Batch& b) const {
    const AugmentShape& s = b.shape;
    const Array<std::uint8_t> images(b.images);
    const Array<RowPlan> rows(b.rows);
    const Floats y(dtype(), idx(s.rows * s.out.height * s.out.width * s.pitch));
    augment(s, images.data(), rows.data(), y.data(), dtype(), nullptr);
    return y.values();
  }
};

// Tiles of 8 to 64 columns: full ones, cut off ones and several side by side and below each other.
TEST_P(PixelsCuda, HaveTheBitsOfTheCpu) {
  for (const int channels : {1, 2, 3})
    for (const ImageExtent out :
         {ImageExtent{1, 1}, {70, 5}, {33, 16}, {32, 32}, {3, 61}, {9, 130}})
      for (const std::uint32_t threshold : {0U, 16384U, 65536U})
        for (const bool dilate : {false, true}) {
          Batch b = batch_of(channels, {out.height + 2, out.width + 1}, out, 8);
          b.shape.plan.mask_threshold = threshold;
          b.shape.plan.dilate = dilate;
          b.shape.plan.mix = channels != 2;
          EXPECT_EQ(bits(run(b)), bits(expected(b, dtype())))
              << out.height << "x" << out.width << "x" << channels << ", threshold " << threshold
              << (dilate ? ", dilated" : "");
        }
}

TEST_P(PixelsCuda, HaveTheSameBitsInAnyOrderOfThreads) {
  Batch b = batch_of(3, {30, 70}, {29, 67}, 16);
  b.shape.plan.mask_threshold = 16384;
  b.shape.plan.dilate = b.shape.plan.mix = true;
  EXPECT_EQ(bits(settled([&] { return run(b); })), bits(expected(b, dtype())));
}

TEST_P(PixelsCuda, OfNoRowsAreNone) {
  Batch b = batch_of(3, {4, 4}, {4, 4}, 8);
  b.shape.rows = 0;
  EXPECT_TRUE(run(b).empty());
}

TEST_P(PixelsCuda, RefuseChannelsThatAreNoWholeVectors) {
  EXPECT_THROW(run(batch_of(3, {4, 4}, {4, 4}, 9)), DeviceError);
  Batch b = batch_of(3, {4, 4}, {4, 4}, 8);
  b.shape.plan.channels = 4;
  EXPECT_THROW(run(b), DeviceError);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PixelsCuda, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

#include "engine/core/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/core/error.h"

namespace warpstep {
namespace {

TEST(Shape, CountsAndSpellsItsExtents) {
  const Shape images{128, 32, 32, 3};
  EXPECT_EQ(images.rank(), 4);
  EXPECT_EQ(images.count(), 393216);
  EXPECT_EQ(images.back(), 3);
  EXPECT_EQ(images[0], 128);
  EXPECT_EQ(images.text(), "128x32x32x3");
  EXPECT_EQ(Shape{}.text(), "scalar");
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ(Shape{}.back(), 1);
  EXPECT_EQ((Shape{0, 7}.count()), 0);
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_THAT(
      [] {
        (Shape{1, 2, 3, 4, 5, 6});
      },
      testing::ThrowsMessage<ShapeError>("a shape of rank 6; at most 5 are supported"));
  EXPECT_THAT(
      [] {
        (Shape{2, -3});
      },
      testing::ThrowsMessage<ShapeError>("a shape with the extent -3 on axis 1"));
  constexpr std::int64_t large = std::int64_t{1} << 32;
  for (const Shape& most : {Shape{large, large >> 4}, Shape{large, large >> 4, 0}})
    EXPECT_EQ(most.count(), most[most.rank() - 1] == 0 ? 0 : std::int64_t{1} << 60);
  EXPECT_THAT(
      [] {
        (Shape{large, large});
      },
      testing::ThrowsMessage<ShapeError>(
          "a shape of 4294967296x4294967296 has more than 2^60 elements"));
  EXPECT_THAT(
      [] {
        (Shape{large, large, 0});
      },
      testing::ThrowsMessage<ShapeError>(testing::HasSubstr("has more than 2^60 elements")));
}

TEST(Type, KnowsItsBytes) {
  EXPECT_EQ((Type{DType::f32, {2, 3}}.bytes()), 24U);
  EXPECT_EQ((Type{DType::bf16, {2, 3}}.bytes()), 12U);
  EXPECT_EQ((Type{DType::u8, {2, 3}}.bytes()), 6U);
  EXPECT_EQ((Type{DType::i32, {}}.bytes()), 4U);
  EXPECT_EQ((Type{DType::f16, {4, 5}}.text()), "f16 4x5");
}

// The distance from 1 to the next number of the type: mantissas of 23, 10 and 7 bits.
TEST(DType, KnowsItsEpsilon) {
  EXPECT_EQ(epsilon(DType::f32), 1.1920928955078125e-07);
  EXPECT_EQ(epsilon(DType::f16), 0.0009765625);
  EXPECT_EQ(epsilon(DType::bf16), 0.0078125);
  EXPECT_EQ(epsilon(DType::i32), 0);
  EXPECT_TRUE(is_float(DType::bf16));
  EXPECT_FALSE(is_float(DType::u8));
}

TEST(Rounded, IsTheNearestOfTheDtypeWithTiesToEven) {
  EXPECT_EQ(rounded(1 + 0x1p-11, DType::f16), 1);  // half way: to even
  EXPECT_EQ(rounded(1 + 3 * 0x1p-11, DType::f16), 1 + 0x1p-9);
  EXPECT_EQ(rounded(-65519, DType::f16), -65504);
  EXPECT_EQ(rounded(65520, DType::f16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(0x1.8p-24, DType::f16), 0x1p-23);  // subnormal, half way
  EXPECT_EQ(rounded(0x1p-26, DType::f16), 0);
  EXPECT_EQ(rounded(1 + 0x1p-8, DType::bf16), 1);
  EXPECT_EQ(rounded(3.1415926, DType::bf16), 3.140625);
  EXPECT_EQ(rounded(1e39, DType::bf16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(0.1, DType::f32), static_cast<double>(0.1F));
}

}  // namespace
}  // namespace warpstep

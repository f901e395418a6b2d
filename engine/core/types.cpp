#include "engine/core/types.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/core/error.h"

namespace warpstep {

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 60;  // their bytes can be counted

}  // namespace

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::u8: return "u8";
    case DType::i32: return "i32";
  }
  return "?";
}

std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::u8:
    case DType::i32: return 0;
  }
  return 0;
}

double rounded(double number, DType dtype) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(number));
  if (!std::isfinite(number) || number == 0 || !is_float(dtype)) return number;
  const bool half = dtype == DType::f16;
  int exponent = 0;
  std::frexp(number, &exponent);
  const int digits = half ? 11 : 8, least = half ? -24 : -133;  // of the smallest subnormal
  const double quantum = std::ldexp(1.0, std::max(exponent - digits, least));
  const double nearest = std::nearbyint(number / quantum) * quantum;
  const double largest = half ? 65504.0 : 0x1.FEp127;
  return std::abs(nearest) <= largest
             ? nearest
             : std::copysign(std::numeric_limits<double>::infinity(), number);
}

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  if (extents.size() > max_rank)
    fail<ShapeError>("a shape of rank {}; at most {} are supported", extents.size(), max_rank);
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] < 0)
      fail<ShapeError>("a shape with the extent {} on axis {}", extents[axis], axis);
    extents_[axis] = extents[axis];
  }
  // Without this, count() and bytes() would be those of a small shape.
  std::int64_t count = 1;
  for (const std::int64_t extent : extents)
    if (extent > 0 && (__builtin_mul_overflow(count, extent, &count) || count > most_elements))
      fail<ShapeError>("a shape of {} has more than 2^60 elements", text());
}

std::string Shape::text() const {
  return rank_ == 0 ? "scalar" : fmt::format("{}", fmt::join(extents(), "x"));
}

std::string Type::text() const {
  return fmt::format("{} {}", name(dtype), shape.text());
}

}  // namespace warpstep

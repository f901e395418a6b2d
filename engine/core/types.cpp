#include "engine/core/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/core/error.h"

namespace warpstep {

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

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  if (extents.size() > max_rank)
    fail<ShapeError>("a shape of rank {}; at most {} are supported", extents.size(), max_rank);
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] < 0)
      fail<ShapeError>("a shape with the extent {} on axis {}", extents[axis], axis);
    extents_[axis] = extents[axis];
  }
}

std::string Shape::text() const {
  return rank_ == 0 ? "scalar" : fmt::format("{}", fmt::join(extents(), "x"));
}

std::string Type::text() const {
  return fmt::format("{} {}", name(dtype), shape.text());
}

}  // namespace warpstep

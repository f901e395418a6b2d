// Element types and shapes, which together are the type of a value in a graph.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep {

// An id or axis as an index of a standard container.
template <std::integral T>
constexpr std::size_t idx(T i) {
  return static_cast<std::size_t>(i);
}

enum class DType : std::uint8_t { f32, f16, bf16, u8, i32 };

std::string_view name(DType dtype);
std::size_t size_bytes(DType dtype);  // of one element
double epsilon(DType dtype);          // distance from 1 to the next number; 0 for integers
// To the nearest number of a floating-point dtype, ties to even.
double rounded(double number, DType dtype);
inline bool is_float(DType dtype) {
  return dtype <= DType::bf16;
}

// Extents of a value, outermost first; images are always NHWC. Rank 0 is a scalar with one element.
class Shape {
 public:
  static constexpr int max_rank = 5;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span(extents.begin(), extents.size())) {}
  // Throws ShapeError for more than max_rank extents, a negative one, or more than 2^60 elements.
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t back() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }
  std::span<const std::int64_t> extents() const {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  std::int64_t count() const {
    return std::accumulate(extents().begin(), extents().end(), std::int64_t{1},
                           std::multiplies<>());
  }
  std::string text() const;  // "128x32x32x3"; "scalar" for rank 0

  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

struct Type {
  DType dtype = DType::f32;
  Shape shape;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.count()) * size_bytes(dtype); }
  std::string text() const;  // "f32 128x32x32x3"
  bool operator==(const Type&) const = default;
};

}  // namespace warpstep

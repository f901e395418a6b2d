// How far the results of two backends may be apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "engine/graph/graph.h"

namespace warpstep::testing_support {

// The largest acceptable difference of a result, relative to its root mean square, where both sides
// computed it from the same operands.
//
// Kernels sum in f32 on every backend, and the rounding errors of `depth` additions grow as its
// root. Tensor cores truncate instead, once per 16 terms, which errs in one direction: of 16-bit
// operands by up to depth / 16 eps(f32), 2e-4 at a depth of 25,000, for which the next part leaves
// room.
//
// The result is rounded once, to `stored`: an error of up to eps / 2 of each element, whatever the
// depth. 2 eps leaves the rest to results that nearly cancel; zeros, or twice the result, are off
// by 1. A fused call that rounds to `between` on the way may add as much: each term of its sums has
// such an error, and they add up as the terms do.
inline double tolerance(DType stored, double depth, DType between = DType::f32) {
  double limit = 4 * epsilon(DType::f32) * std::sqrt(std::max(1.0, depth));
  for (const DType dtype : {stored, between})
    if (dtype != DType::f32) limit += 2 * epsilon(dtype);
  return limit;
}

// The dtype that a fused call rounds to between its parts, where the reference rounds nothing: what
// a convolution reads of its prologue's norm, gradients of which it also gives sums, an attention's
// probabilities and the gradients of its scores. f32 where it rounds its results alone.
inline DType rounded_between(const Graph& graph, const Node& node) {
  const auto is = [&]<class... Op>() { return (std::holds_alternative<Op>(node.op) || ...); };
  const auto* const norm = std::get_if<BatchNormGrad>(&node.op);
  const bool rounds =
      is.operator()<NormConv, NormConvDataGrad, NormConvWeightGrad, Attention, AttentionGrad>() ||
      (norm != nullptr && norm->sum);
  return rounds ? graph.value(node.in[0]).type.dtype : DType::f32;
}

// What a library's exp or tanh may be wrong by in f32: of cublasLt's GELU 1.7e-6, read off an H200.
inline constexpr double library_error = 4e-6;

// Root mean square of a - b over the root mean square of b; 0 where both are zero, infinite where a
// is not finite.
inline double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  if (difference == 0) return 0;
  return size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / size);
}

}  // namespace warpstep::testing_support

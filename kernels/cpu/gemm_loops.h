// The innermost loops of a product, for the instruction set of this CPU.
#pragma once

#include <cstdint>

#include "kernels/cpu/ahead.h"

namespace warpstep::cpu {

constexpr std::int64_t most_width = 32;  // of a strip
constexpr std::int64_t pack_slack = 16;  // floats that pack_rows() may write beyond its result

// One call of the innermost loop: a(i, k) = a[i * a_row + k], or in packed strips, where a_row is
// 0, a[i + k * rows]; b(k, j) = b[k * tile_columns + j].
struct GemmTile {
  const float *a, *b;
  std::int64_t a_row;
  const float* bias;  // of the tile's columns, or null
  float* const* c;    // a pointer for each row
  std::int64_t depth;
  int rows, columns;
  bool accumulate, relu;
  LinesAhead ahead;
};

// Dot products of every row of a with `columns` rows of b, which are adjacent in memory as those of
// a are: c(i, j) = a[i * a_row + ...] b[j * b_row + ...] + bias[j].
struct DotRows {
  const float *a, *b;
  std::int64_t a_row, b_row;
  const float* bias;  // or null
  float* const* c;    // a pointer for each row
  std::int64_t rows, columns, depth;
  bool relu;
};

struct GemmLoops {
  void (*multiply)(const GemmTile&);
  void (*dot_rows)(const DotRows&);
  // What they do: gemm.inc.
  void (*pack_rows)(const float* const* rows, int width, int padded, std::int64_t depth, float* to);
  void (*pack_columns)(const float* const* rows, int width, int padded, std::int64_t depth,
                       float* to);
  void (*pack_lines)(const float* from, std::int64_t stride, int count, const StripLayout& layout,
                     std::int64_t depth, float* to);
  int tile_rows, tile_columns;
};
const GemmLoops& gemm_loops();

}  // namespace warpstep::cpu

// The innermost loops of products of bf16 (gemm_bf16.h), for AVX512_BF16 and AMX: tiles, and the
// packing of their operands. A strip of a is [rows][depth], a panel of b [depth / 2][32
// columns][2]; the depth of both is padded to a multiple of 32. Only for CPUs where bf16_isa() is
// not none.
#pragma once

#include <cstdint>

#include "engine/core/bf16.h"

namespace warpstep::cpu {

struct LinesAhead;  // kernels/cpu/ahead.h

constexpr int lines_at_step = 8;  // of memory, that a tile asks for ahead of time, at most
constexpr int square = 32;        // rows and columns of a square of c, and the unit of the depth

// Elements [begin, end) of a line, from `from` on; zeros around them.
struct Bf16Piece {
  const Bf16* from;
  std::int64_t begin, end;
};

// sums [32, 32] = (accumulate ? sums : 0) + a b. The depth has steps of 32: those of a row of a
// begin at a[i * stride + offsets[step]], those of b follow each other.
struct Bf16Tile {
  const Bf16* a;
  std::int64_t stride;
  const std::int64_t* offsets;
  std::int64_t steps;
  const Bf16* b;
  int rows, columns;
  bool accumulate;
  float* sums;
  LinesAhead* ahead;  // or null; AMX, whose tiles take less time than these lines, ignores them
};

struct Bf16TileEnd {
  const float* sums;
  std::int64_t apart, parts;  // of the sums to be added
  const Bf16* bias;           // of the tile's columns, or null
  Bf16* const* c;             // where each row of c begins; null for one that is not wanted
  std::int64_t first;         // the tile's first column
  int rows, columns;
  bool relu;
};

struct Bf16Loops {
  void (*begin)();  // configures the thread's tiles
  void (*multiply)(const Bf16Tile&);
  void (*end)();
  void (*finish)(const Bf16TileEnd&);
  // to[i * stride] = piece i, `count` elements long.
  void (*copy_pieces)(const Bf16Piece* pieces, int rows, std::int64_t count, std::int64_t stride,
                      Bf16* to);
  // to[i * stride] = zeros in columns [begin, end).
  void (*clear_columns)(int rows, std::int64_t begin, std::int64_t end, std::int64_t stride,
                        Bf16* to);
  // Rows of `to` = those of `from`, each to the nearest bf16, but denormals to 0.
  void (*round_rows)(const float* from, std::int64_t from_row, std::int64_t rows,
                     std::int64_t columns, Bf16* to, std::int64_t to_row);
  // A panel of b, or a part of its depth, from `depth` lines of `columns` elements, an even number.
  void (*pair_lines)(const Bf16* const* lines, int columns, std::int64_t depth, Bf16* to);
  // A panel of b from 32 rows that are `stride` apart.
  void (*pair_rows)(const Bf16* rows, std::int64_t stride, std::int64_t depth, Bf16* to);
  // A strip of a from `depth` lines of `rows` elements, a multiple of 32.
  void (*transpose_lines)(const Bf16* const* lines, int rows, std::int64_t depth, Bf16* to);
};
const Bf16Loops& bf16_loops();

}  // namespace warpstep::cpu

// VDPBF16PS adds 32 products of bf16 to the 16 sums of a register, TDPBF16PS 8192 to the 256 of a
// tile in 16 cycles: 16 times as many as AVX-512 does in float. Figures: bench/RECORDS.md.
#include "kernels/cpu/bf16_loops.h"

#include "engine/core/cpu_isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <utility>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/strided_tile.h"

namespace warpstep::cpu {
namespace {

#if defined(__clang__)
#pragma clang attribute push(                                                            \
    __attribute__((                                                                      \
        target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma,amx-tile,amx-bf16")
#endif
namespace bf16 {

constexpr int register_lanes = 16, tile_rows = 11;
#include "kernels/cpu/vectors.inc"

using Words = Floats<16>;  // 16 pairs of bf16, moved as they are

WARPSTEP_VECTOR void copy_line(const Bf16* from, std::int64_t count, Bf16* to) {
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
  if (i == count) return;
  const __mmask32 rest = ~__mmask32{0} >> (32 - (count - i));
  _mm512_mask_storeu_epi16(to + i, rest, _mm512_maskz_loadu_epi16(rest, from + i));
}

WARPSTEP_VECTOR void clear_line(Bf16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 32) {
    const __mmask32 mask = count - i >= 32 ? ~__mmask32{0} : ~__mmask32{0} >> (32 - (count - i));
    _mm512_mask_storeu_epi16(to + i, mask, _mm512_setzero_si512());
  }
}

inline void copy_pieces(const Bf16Piece* pieces, int rows, std::int64_t count, std::int64_t stride,
                        Bf16* to) {
  for (int i = 0; i < rows; ++i, to += stride) {
    const Bf16Piece& p = pieces[i];
    if (p.begin > 0) clear_line(to, p.begin);
    copy_line(p.from, p.end - p.begin, to + p.begin);
    if (p.end < count) clear_line(to + p.end, count - p.end);
  }
}

inline void clear_columns(int rows, std::int64_t begin, std::int64_t end, std::int64_t stride,
                          Bf16* to) {
  if (begin == end) return;
  for (int i = 0; i < rows; ++i) clear_line(to + i * stride + begin, end - begin);
}

// 16 columns of two lines, a pair each.
WARPSTEP_VECTOR Words pairs_of(const Bf16* first, const Bf16* second, __mmask16 mask) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first)),
                high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second));
  return (Words)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

WARPSTEP_VECTOR __mmask16 first_columns(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
}

inline void round_rows(const float* from, std::int64_t from_row, std::int64_t rows,
                       std::int64_t columns, Bf16* to, std::int64_t to_row) {
  for (std::int64_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    std::int64_t i = 0;
    for (; i + 32 <= columns; i += 32)
      _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16),
                                                               _mm512_loadu_ps(from + i)));
    for (; i < columns; i += 16) {
      const __mmask16 mask = first_columns(static_cast<int>(columns - i));
      _mm256_mask_storeu_epi16(to + i, mask,
                               (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i)));
    }
  }
}

inline void pair_lines(const Bf16* const* lines, int columns, std::int64_t padded, Bf16* to) {
  const __mmask16 left = first_columns(columns), right = first_columns(columns - 16);
  for (std::int64_t k = 0; k < padded; k += 2, to += 2 * square) {
    store(reinterpret_cast<float*>(to), pairs_of(lines[k], lines[k + 1], left));
    store(reinterpret_cast<float*>(to + square), pairs_of(lines[k] + 16, lines[k + 1] + 16, right));
  }
}

inline void transpose_lines(const Bf16* const* lines, int rows, std::int64_t padded, Bf16* to) {
  for (std::int64_t k = 0; k < padded; k += 32)
    for (int i = 0; i < rows; i += 16) {
      const __mmask16 mask = first_columns(rows - i);
      Words words[16];
      unrolled<16>([&]<int p>() __attribute__((always_inline)) {
        words[p] = pairs_of(lines[k + 2 * p] + i, lines[k + 2 * p + 1] + i, mask);
      });
      transpose<16>(words);
      unrolled<16>([&]<int r>() __attribute__((always_inline)) {
        store(reinterpret_cast<float*>(to + (i + r) * padded + k), words[r]);
      });
    }
}

inline void pair_rows(const Bf16* rows, std::int64_t stride, std::int64_t padded, Bf16* to) {
  for (std::int64_t k = 0; k < padded; k += 32)
    for (int i = 0; i < square; i += 16) {
      Words words[16];
      unrolled<16>([&]<int r>() __attribute__((always_inline)) {
        words[r] = load<16>(reinterpret_cast<const float*>(rows + (i + r) * stride + k));
      });
      transpose<16>(words);
      unrolled<16>([&]<int p>() __attribute__((always_inline)) {
        store(reinterpret_cast<float*>(to + (k + 2 * p) * square + 2 * i), words[p]);
      });
    }
}

// sums [rows, 16 * vectors] of a tile = (accumulate ? sums : 0) + a b, with
// AVX512_BF16. Added last: one long chain of sums would lose digits.
template <int rows, int vectors, bool asks>
__attribute__((noinline)) void dot_tile_of(const Bf16Tile& t, int first) {
  float* sums = t.sums + first * square;
  __m512 sum[rows][vectors];
  unrolled<rows>([&]<int i>() __attribute__((always_inline)) {
    unrolled<vectors>([&]<int j>()
                          __attribute__((always_inline)) { sum[i][j] = _mm512_setzero_ps(); });
  });
  constexpr int groups = (rows + 3) / 4;
  const std::int64_t stride = t.stride;
  const Bf16* b = t.b;
  LinesAhead ahead;
  if constexpr (asks) ahead = *t.ahead;
  for (std::int64_t s = 0; s < t.steps; ++s) {
    const Bf16 *a = t.a + first * stride + t.offsets[s], *from[groups];
    unrolled<groups>([&]<int g>() __attribute__((always_inline)) { from[g] = a + 4 * g * stride; });
    if constexpr (asks)
      for (int i = 0; i < lines_at_step && ahead.count > 0; ++i, --ahead.count) ask_for_next(ahead);
    for (int k = 0; k < square; k += 2) {
      __m512bh columns[vectors];
      unrolled<vectors>([&]<int j>() __attribute__((always_inline)) {
        columns[j] = (__m512bh)_mm512_loadu_ps(reinterpret_cast<const float*>(b) + 16 * j);
      });
      unrolled<rows>([&]<int i>() __attribute__((always_inline)) {
        float two;
        __builtin_memcpy(&two, from[i / 4] + i % 4 * stride, sizeof two);
        const auto pair = (__m512bh)_mm512_set1_ps(two);
        unrolled<vectors>([&]<int j>() __attribute__((always_inline)) {
          sum[i][j] = _mm512_dpbf16_ps(sum[i][j], pair, columns[j]);
        });
      });
      unrolled<groups>([&]<int g>() __attribute__((always_inline)) { from[g] += 2; });
      b += 2 * square;
    }
  }
  if constexpr (asks) *t.ahead = ahead;
  unrolled<rows>([&]<int i>() __attribute__((always_inline)) {
    unrolled<vectors>([&]<int j>() __attribute__((always_inline)) {
      float* const to = sums + i * square + 16 * j;
      if (t.accumulate) sum[i][j] = _mm512_add_ps(sum[i][j], _mm512_loadu_ps(to));
      _mm512_storeu_ps(to, sum[i][j]);
    });
  });
}

template <bool asks>
constexpr auto dot_tile_table = tile_table<tile_rows>([]<int rows>() {
  return tile_table<tile_vectors>([]<int vectors>() { return dot_tile_of<rows, vectors, asks>; });
});

inline void dot_tiles(const Bf16Tile& t) {
  const auto& runs = t.ahead ? dot_tile_table<true> : dot_tile_table<false>;
  const int parts = (t.rows + tile_rows - 1) / tile_rows;
  for (int p = 0; p < parts; ++p) {
    const int begin = t.rows * p / parts, end = t.rows * (p + 1) / parts;
    runs.of[end - begin - 1].of[t.columns > 16](t, begin);
  }
}

// The same with AMX, in tiles of 16x16 sums: 0 and 1 of the upper rows, 2
// and 3 of the lower ones. Its rows beyond those of the product are
// computed, too, and not read.
template <int row_tiles, int column_tiles>
__attribute__((noinline)) void amx_tile_of(const Bf16Tile& t) {
  constexpr bool lower = row_tiles == 2, right = column_tiles == 2;
  constexpr std::int64_t row_bytes = square * sizeof(float);
  const std::int64_t a_bytes = t.stride * static_cast<std::int64_t>(sizeof(Bf16));
  alignas(64) float added[square * square];  // to earlier sums, as above
  float* const to = t.accumulate ? added : t.sums;
  __asm__ volatile("" ::: "memory");  // the operands are in memory
  _tile_zero(0);
  if constexpr (right) _tile_zero(1);
  if constexpr (lower) _tile_zero(2);
  if constexpr (lower && right) _tile_zero(3);
  const Bf16* b = t.b;
  for (std::int64_t s = 0; s < t.steps; ++s) {
    const Bf16* a = t.a + t.offsets[s];
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (right) {
      _tile_loadd(7, b + 32, row_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (lower) {
      _tile_loadd(5, a + 16 * t.stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (lower && right) _tile_dpbf16ps(3, 5, 7);
    b += 32 * square;
  }
  _tile_stored(0, to, row_bytes);
  if constexpr (right) _tile_stored(1, to + 16, row_bytes);
  if constexpr (lower) _tile_stored(2, to + 16 * square, row_bytes);
  if constexpr (lower && right) _tile_stored(3, to + 16 * square + 16, row_bytes);
  __asm__ volatile("" ::: "memory");
  if (!t.accumulate) return;
  for (int i = 0; i < 16 * row_tiles; ++i)
    for (int j = 0; j < 16 * column_tiles; j += 16) {
      float* const sums = t.sums + i * square + j;
      _mm512_storeu_ps(
          sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_load_ps(added + i * square + j)));
    }
}

inline void amx_tiles(const Bf16Tile& t) {
  using Run = void (*)(const Bf16Tile&);
  static constexpr Run runs[2][2] = {{amx_tile_of<1, 1>, amx_tile_of<1, 2>},
                                     {amx_tile_of<2, 1>, amx_tile_of<2, 2>}};
  runs[t.rows > 16][t.columns > 16](t);
}

// Eight tiles of 16 rows of 64 bytes.
inline void amx_begin() {
  alignas(64) unsigned char config[64] = {1};
  for (int tile = 0; tile < 8; ++tile) {
    config[16 + 2 * tile] = 64;
    config[48 + tile] = 16;
  }
  __asm__ volatile("" ::: "memory");
  _tile_loadconfig(config);
}

inline void amx_end() {
  _tile_release();
}

inline void no_configuration() {}

// 16 numbers of bf16.
WARPSTEP_VECTOR __m512 half_of(const Bf16* from, __mmask16 mask) {
  const __m512i words = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, from));
  return (__m512)_mm512_maskz_slli_epi32(mask, words, 16);
}

// The end of a tile: the sums of all parts, bias and relu, rounded to the rows of c.
template <bool several, bool biased, bool relu>
__attribute__((noinline)) void finish_tile_of(const Bf16TileEnd& t) {
  const __mmask32 columns = ~__mmask32{0} >> (32 - t.columns);
  __m512 bias[2];
  unrolled<2>([&]<int j>() __attribute__((always_inline)) {
    bias[j] = biased ? half_of(t.bias + 16 * j, static_cast<__mmask16>(columns >> 16 * j))
                     : _mm512_setzero_ps();
  });
  const float* from = t.sums;
  for (int i = 0; i < t.rows; ++i, from += square) {
    Bf16* c = t.c[i];
    if (!c) continue;
    __m512 sum[2];
    unrolled<2>([&]<int j>() __attribute__((always_inline)) {
      sum[j] = _mm512_loadu_ps(from + 16 * j);
      if constexpr (several)
        for (std::int64_t p = 1; p < t.parts; ++p)
          sum[j] = _mm512_add_ps(sum[j], _mm512_loadu_ps(from + p * t.apart + 16 * j));
      if constexpr (biased) sum[j] = _mm512_add_ps(sum[j], bias[j]);
      if constexpr (relu)
        sum[j] = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(sum[j], _mm512_setzero_ps(), _CMP_NLE_UQ),
                                     sum[j]);
    });
    const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(sum[1], sum[0]);
    if (t.columns == square)
      _mm512_storeu_si512(c + t.first, rounded);
    else
      _mm512_mask_storeu_epi16(c + t.first, columns, rounded);
  }
}

inline void finish_tile(const Bf16TileEnd& t) {
  using Run = void (*)(const Bf16TileEnd&);
  static constexpr Run runs[2][2][2] = {
      {{finish_tile_of<false, false, false>, finish_tile_of<false, false, true>},
       {finish_tile_of<false, true, false>, finish_tile_of<false, true, true>}},
      {{finish_tile_of<true, false, false>, finish_tile_of<true, false, true>},
       {finish_tile_of<true, true, false>, finish_tile_of<true, true, true>}}};
  runs[t.parts > 1][t.bias != nullptr][t.relu](t);
}

}  // namespace bf16
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

template <void (*begin)(), void (*multiply)(const Bf16Tile&), void (*end)()>
constexpr Bf16Loops loops_of() {
  return {.begin = begin,
          .multiply = multiply,
          .end = end,
          .finish = bf16::finish_tile,
          .copy_pieces = bf16::copy_pieces,
          .clear_columns = bf16::clear_columns,
          .round_rows = bf16::round_rows,
          .pair_lines = bf16::pair_lines,
          .pair_rows = bf16::pair_rows,
          .transpose_lines = bf16::transpose_lines};
}

}  // namespace

const Bf16Loops& bf16_loops() {
  static constexpr Bf16Loops amx = loops_of<bf16::amx_begin, bf16::amx_tiles, bf16::amx_end>();
  static constexpr Bf16Loops dot =
      loops_of<bf16::no_configuration, bf16::dot_tiles, bf16::no_configuration>();
  return bf16_isa() == Bf16Isa::amx ? amx : dot;
}

}  // namespace warpstep::cpu
#else
#include "engine/core/error.h"

namespace warpstep::cpu {

const Bf16Loops& bf16_loops() {
  fail<UsageError>("there are no loops for products of bf16 on this CPU");  // bf16_isa() is none
}

}  // namespace warpstep::cpu
#endif

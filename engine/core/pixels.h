// The arithmetic from a pixel's bytes to the network's input, the same on every backend, bit for
// bit: one affine map of the colours, and per row of the batch a window, jitter, mask and mixing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/core/bf16.h"
#include "engine/core/random.h"
#include "engine/core/types.h"

namespace warpstep {

// The row plan of one row of a batch: 56 bytes, made by the loader, uploaded with the labels.
struct RowPlan {
  std::uint32_t source = 0;   // image in the buffer of images: the row itself, or a sample of a set
                              // that is resident on the device
  std::int16_t y = 0, x = 0;  // the window's first pixel in that image; pixels outside the image
                              // are bytes of 0
  std::uint32_t mirrored = 0;         // 1: left and right of the window are exchanged
  float gain = 1, offset = 0;         // contrast and brightness: v = gain * byte + offset
  std::uint32_t key[2] = {0, 0};      // of the random mask: the run's seed
  std::uint32_t counter[2] = {0, 0};  // of the random mask: epoch and sample
  std::uint32_t pair = 0;             // row that is mixed in
  float weight = 1;                   // the pair's weight is 1 - weight
  std::int32_t pair_label = -1;       // the pair's label
  // The output's lines [top, bottom) and columns [left, right), if any, are the pair's own; then
  // the others are the row's own, and nothing is mixed.
  std::int16_t top = 0, left = 0, bottom = 0, right = 0;

  bool is_cut() const { return bottom > top && right > left; }
  bool is_cut_at(std::int64_t i, std::int64_t j) const {
    return i >= top && i < bottom && j >= left && j < right;
  }
};
static_assert(sizeof(RowPlan) == 56 && std::is_trivially_copyable_v<RowPlan>);

// The type of a graph value that holds row plans, each as its 32-bit words.
inline Type row_plans_type(std::int64_t rows) {
  return {DType::i32, {rows, std::int64_t{sizeof(RowPlan) / sizeof(std::int32_t)}}};
}

// Output pixel (i, j) of a row has the bytes byte[c] of pixel (y + i, x + j) of its image, or of
// (y + i, x + width - 1 - j) if the row is mirrored. For each channel c of the image and o of the
// output:
//   v[c] = fma(gain, byte[c], offset), or 0 if the mask covers (i, j)
//   y[o] = fma(m[o][2], v[2], fma(m[o][1], v[1], fma(m[o][0], v[0], shift[o])))
//   y[o] = fma(weight, y[o] - z[o], z[o]) if weight < 1; or, if the row has a box for its pair,
//   z[o]
//          in the box and y[o] outside of it
// with terms of m up to `channels`. z is row `pair`'s y before mixing, from its own image, window,
// mirroring, jitter and mask. Each fma and the difference are rounded once to f32.
struct PixelPlan {
  int channels = 3;  // 1 to 3
  std::array<std::array<float, 3>, 3> m{};
  std::array<float, 3> shift{};
  // The probability that a pixel is drawn into the mask, times 65536; 0: no mask.
  std::uint32_t mask_threshold = 0;
  // The mask also covers the 4 neighbours of drawn pixels. Pixels outside the image are neither
  // drawn nor neighbours.
  bool dilate = false;
  bool mix = false;  // rows have pairs

  bool operator==(const PixelPlan&) const = default;
};

// Whether pixel (y, x) of an output of `width` is drawn into the row's mask. A mask belongs to the
// output, wherever that was cut from the image. Eight pixels share a draw: philox({y * ceil(width /
// 8)
// + x / 8, sample, epoch, Purpose::mask}, seed), whose 16-bit halves, from the lowest up, are
// compared with the threshold.
constexpr std::array<std::uint32_t, 4> mask_draw(const RowPlan& row, std::uint32_t y,
                                                 std::uint32_t x, std::uint32_t width) {
  return philox({y * ((width + 7) / 8) + x / 8, row.counter[1], row.counter[0],
                 static_cast<std::uint32_t>(Purpose::mask)},
                {row.key[0], row.key[1]});
}
constexpr bool is_drawn(const PixelPlan& plan, const RowPlan& row, std::uint32_t y, std::uint32_t x,
                        std::uint32_t width) {
  const std::uint32_t word = mask_draw(row, y, x, width)[x % 8 / 2];
  return (word >> (x % 2 * 16) & 0xFFFF) < plan.mask_threshold;
}

struct ImageExtent {
  std::int64_t height = 0, width = 0;

  bool operator==(const ImageExtent&) const = default;
};

// Computes row `rows[r]` of a batch on the CPU with the best vector instructions: from `images`
// u8 [any, source.height, source.width, channels] to y f32 [out.height, out.width, channels].
// ShapeError if `channels` of the plan is not 1, 2 or 3. Rows and pairs must be in bounds. A pure
// function of its arguments; several threads may compute rows at once.
void apply_pixels(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                  const std::uint8_t* images, ImageExtent source, ImageExtent out, float* y);
// The same, each number rounded to bf16 at the end.
void apply_pixels(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                  const std::uint8_t* images, ImageExtent source, ImageExtent out, Bf16* y);

}  // namespace warpstep

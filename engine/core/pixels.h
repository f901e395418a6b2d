// What happens to a pixel on its way from a byte to the network's number, as arithmetic that every
// backend does alike, to the bit: one affine map of the colours, with what a row of the batch has
// of its own (jitter, mask, mixup, place in a resident set).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/core/random.h"
#include "engine/core/types.h"

namespace warpstep {

// What the device must know of one row of a batch. 48 bytes, made by the loader, uploaded with the
// labels.
struct RowPlan {
  std::uint32_t source = 0;       // image in the buffer of images: the row itself, or a sample of a
                                  // set that is resident on the device
  std::int16_t y = 0, x = 0;      // of the window's first pixel in that image; what lies outside is
                                  // byte 0
  std::uint32_t mirrored = 0;     // 1: left and right of the window are exchanged
  float gain = 1, offset = 0;     // contrast and brightness: v = gain * byte + offset
  std::uint32_t key[2] = {0, 0};  // of the random mask: the run's seed,
  std::uint32_t counter[2] = {0, 0};  // epoch and sample
  std::uint32_t pair = 0;             // row that is mixed in,
  float weight = 1;                   // with 1 - weight
  std::int32_t pair_label = -1;       // its label
};
static_assert(sizeof(RowPlan) == 48 && std::is_trivially_copyable_v<RowPlan>);

// How the plans of so many rows are a value of a graph: each as its words.
inline Type row_plans_type(std::int64_t rows) {
  return {DType::i32, {rows, std::int64_t{sizeof(RowPlan) / sizeof(std::int32_t)}}};
}

// Output pixel (i, j) of a row has the byte[c] of pixel (y + i, x + j) of its image, or of
// (y + i, x + width - 1 - j) where the row is mirrored. For channels c of the image and o of the
// output, all `channels` of them:
//   v[c] = fma(gain, byte[c], offset), or 0 where the mask covers (i, j)
//   y[o] = fma(m[o][2], v[2], fma(m[o][1], v[1], fma(m[o][0], v[0], shift[o])))
//   y[o] = fma(weight, y[o] - z[o], z[o]) where weight < 1
// with terms of m for the `channels` there are, and z what row `pair` would have for y before it is
// mixed itself: of its own image, place, mirroring, jitter and mask. Each fma and the difference
// are rounded once to f32.
struct PixelPlan {
  int channels = 3;  // 1 to 3
  std::array<std::array<float, 3>, 3> m{};
  std::array<float, 3> shift{};
  // Of 65536: how likely a pixel is drawn into the mask; 0: no mask.
  std::uint32_t mask_threshold = 0;
  // The mask also covers the 4 neighbours of what was drawn, inside the image: neither does a
  // neighbour lie across an edge, nor is anything drawn outside.
  bool dilate = false;
  bool mix = false;  // rows have pairs

  bool operator==(const PixelPlan&) const = default;
};

// Whether pixel (y, x) of an output of `width` is drawn into the row's mask: a mask lies on what
// the network sees, wherever that was cut from. Eight pixels share a draw: philox({y * ceil(width /
// 8) + x / 8, sample, epoch, Purpose::mask}, seed), the 16-bit halves of its four words from the
// low one up, each below the threshold or not.
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

// Row `rows[r]` of a batch on the CPU, by the best vector instructions there are: from `images`
// u8 [any, source.height, source.width, channels] to y f32 [out.height, out.width, channels].
// ShapeError: `channels` of the plan is not 1, 2 or 3. Rows and pairs must be in their bounds.
// Independent of everything but its arguments; may be called for rows on several threads.
void apply_pixels(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                  const std::uint8_t* images, ImageExtent source, ImageExtent out, float* y);

}  // namespace warpstep

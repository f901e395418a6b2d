// With a mask the time is bound by arithmetic (10 rounds of Philox for 8 pixels), without by
// memory. The image is read once, in spans of a row that stay in the first-level cache.
#include "engine/core/pixels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/pixels_variants.h"
#include "engine/core/types.h"

namespace warpstep {
namespace {

constexpr int draws = 16;         // at once, in vector registers
constexpr int span_pixels = 256;  // a multiple of 64

struct MaskDraws {
  std::uint32_t key[2], counter[4], threshold;
};

// The map of a PixelPlan as plain arrays, whose elements are loaded once.
struct Colours {
  int channels;
  float m[3][3], shift[3];
};

#define WARPSTEP_SOURCE "engine/core/pixels.inc"
#include "engine/core/each_set.inc"

struct Loops {
  decltype(&plain::all_draws) all_draws;
  decltype(&plain::transform) transform;
  decltype(&plain::mix) mix;
  decltype(&plain::round_all) round_all;
};

// Which pixels of an image of `extent` the mask covers, one bit per pixel: rows of whole words,
// bits beyond the width are 0.
class Mask {
 public:
  Mask(const Loops& loops, const PixelPlan& plan, const RowPlan& row, ImageExtent extent)
      : words_((idx(extent.width) + 63) / 64), bits_(words_ * idx(extent.height)) {
    const std::size_t row_bytes = (idx(extent.width) + 7) / 8,
                      count = row_bytes * idx(extent.height);
    std::vector<std::uint8_t> bytes((count + draws - 1) / draws * draws);
    const MaskDraws mask{
        {row.key[0], row.key[1]},
        {0, row.counter[1], row.counter[0], static_cast<std::uint32_t>(Purpose::mask)},
        plan.mask_threshold};
    loops.all_draws(mask, static_cast<std::uint32_t>(count), bytes.data());
    for (std::size_t y = 0; y < idx(extent.height); ++y)
      fill_row(bytes.data() + y * row_bytes, row_bytes, extent.width, bits_.data() + y * words_);
    if (plan.dilate) dilate();
  }

  // The bits of pixel `x`, a multiple of 64, and of those to its right.
  const std::uint64_t* at(std::int64_t y, std::int64_t x) const {
    return bits_.data() + idx(y) * words_ + idx(x) / 64;
  }

 private:
  static void fill_row(const std::uint8_t* bytes, std::size_t count, std::int64_t width,
                       std::uint64_t* words) {
    for (std::size_t i = 0; i < count; ++i) words[i / 8] |= std::uint64_t{bytes[i]} << i % 8 * 8;
    if (width % 64 != 0) words[width / 64] &= ~std::uint64_t{0} >> (64 - width % 64);
  }

  // Bits that this shifts beyond the width are never read.
  void dilate() {
    const std::vector<std::uint64_t> drawn = bits_;
    const auto word = [&](std::size_t row, std::size_t w) { return drawn[row * words_ + w]; };
    const std::size_t rows = bits_.size() / std::max<std::size_t>(1, words_);
    for (std::size_t y = 0; y < rows; ++y)
      for (std::size_t w = 0; w < words_; ++w) {
        const std::uint64_t own = word(y, w);
        std::uint64_t& bits = bits_[y * words_ + w];
        bits |= own << 1 | own >> 1;
        if (w > 0) bits |= word(y, w - 1) >> 63;
        if (w + 1 < words_) bits |= word(y, w + 1) << 63;
        if (y > 0) bits |= word(y - 1, w);
        if (y + 1 < rows) bits |= word(y + 1, w);
      }
  }

  std::size_t words_;  // per row
  std::vector<std::uint64_t> bits_;
};

// One row of a batch before mixing: its window of the image, colours and mask.
class Transform {
 public:
  Transform(const Loops& loops, const PixelPlan& plan, const RowPlan& row,
            const std::uint8_t* images, ImageExtent source, ImageExtent out)
      : loops_(loops),
        row_(row),
        image_(images + idx(source.height * source.width * plan.channels) * row.source),
        source_(source),
        out_(out),
        map_{plan.channels, {}, {}},
        mask_(loops, plan, row, plan.mask_threshold > 0 ? out : ImageExtent{}),
        masked_(plan.mask_threshold > 0) {
    for (std::size_t o = 0; o < 3; ++o) {
      map_.shift[o] = plan.shift[o];
      for (std::size_t c = 0; c < 3; ++c) map_.m[o][c] = plan.m[o][c];
    }
  }

  // y of up to span_pixels pixels of output row `oy` from column `ox`, a multiple of 64.
  void span(std::int64_t oy, std::int64_t ox, int pixels, float* y) const {
    const std::int64_t first = row_.mirrored != 0 ? out_.width - ox - pixels : ox;
    std::uint8_t staged[3 * span_pixels];
    const std::uint8_t* bytes = bytes_of(row_.y + oy, row_.x + first, pixels, staged);
    std::uint32_t covered[span_pixels / 32];
    if (masked_) {
      const std::uint64_t* words = mask_.at(oy, ox);
      for (int w = 0; w < (pixels + 63) / 64; ++w) {
        covered[2 * w] = static_cast<std::uint32_t>(words[w]);
        covered[2 * w + 1] = static_cast<std::uint32_t>(words[w] >> 32);
      }
    }
    loops_.transform(map_, row_, bytes, masked_ ? covered : nullptr, pixels, y);
  }

 private:
  // The bytes of `pixels` pixels from (y, x): in the image, or copied to `staged` if some lie
  // outside.
  const std::uint8_t* bytes_of(std::int64_t y, std::int64_t x, int pixels,
                               std::uint8_t* staged) const {
    const std::int64_t channels = map_.channels;
    const bool has_row = y >= 0 && y < source_.height;
    if (has_row && x >= 0 && x + pixels <= source_.width)
      return image_ + (y * source_.width + x) * channels;
    std::memset(staged, 0, idx(pixels * channels));
    const std::int64_t begin = std::max<std::int64_t>(x, 0),
                       end = std::min(x + pixels, source_.width);
    if (has_row && begin < end)
      std::memcpy(staged + (begin - x) * channels, image_ + (y * source_.width + begin) * channels,
                  idx((end - begin) * channels));
    return staged;
  }

  const Loops& loops_;
  const RowPlan& row_;
  const std::uint8_t* image_;
  ImageExtent source_, out_;
  Colours map_;
  Mask mask_;
  bool masked_;
};

// Copies the part of the pair's `z` that lies in the row's box: of `pixels` pixels of line `oy`
// from column `ox`.
void cut(const RowPlan& row, std::int64_t oy, std::int64_t ox, int pixels, int channels,
         const float* z, float* y) {
  if (oy < row.top || oy >= row.bottom) return;
  const std::int64_t begin = std::max<std::int64_t>(row.left - ox, 0),
                     end = std::min<std::int64_t>(row.right - ox, pixels);
  if (begin < end) std::copy(z + begin * channels, z + end * channels, y + begin * channels);
}

template <class Y>
void apply_by(const Loops& loops, const PixelPlan& plan, std::span<const RowPlan> rows,
              std::size_t r, const std::uint8_t* images, ImageExtent source, ImageExtent out,
              Y* y) {
  if (plan.channels < 1 || plan.channels > 3)
    fail<ShapeError>("pixels of {} channels; 1 to 3 are possible", plan.channels);
  const RowPlan& row = rows[r];
  const Transform own(loops, plan, row, images, source, out);
  const bool mixed = plan.mix && row.weight < 1;
  std::optional<Transform> other;
  if (mixed) other.emplace(loops, plan, rows[row.pair], images, source, out);
  for (std::int64_t oy = 0; oy < out.height; ++oy)
    for (std::int64_t ox = 0; ox < out.width; ox += span_pixels) {
      const int pixels = static_cast<int>(std::min<std::int64_t>(span_pixels, out.width - ox));
      float exact[3 * span_pixels];
      float* own_y = exact;
      if constexpr (std::is_same_v<Y, float>) own_y = y;
      own.span(oy, ox, pixels, own_y);
      if (other) {
        float z[3 * span_pixels];
        other->span(oy, ox, pixels, z);
        if (row.is_cut())
          cut(row, oy, ox, pixels, plan.channels, z, own_y);
        else
          loops.mix(row.weight, z, own_y, pixels * plan.channels);
      }
      if constexpr (!std::is_same_v<Y, float>) loops.round_all(own_y, y, pixels * plan.channels);
      y += pixels * plan.channels;
    }
}

// `With` is a type, so that each instance is a separate function with an address.
template <class With, class Y>
void apply_variant(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                   const std::uint8_t* images, ImageExtent source, ImageExtent out, Y* y) {
  apply_by(With::loops, plan, rows, r, images, source, out, y);
}

struct Avx512 {
  static constexpr Loops loops{avx512::all_draws, avx512::transform, avx512::mix,
                               avx512::round_all};
};
struct Avx2 {
  static constexpr Loops loops{avx2::all_draws, avx2::transform, avx2::mix, avx2::round_all};
};
struct Plain {
  static constexpr Loops loops{plain::all_draws, plain::transform, plain::mix, plain::round_all};
};

template <class With>
PixelsVariant variant_of(CpuIsa isa) {
  return {isa, apply_variant<With, float>, apply_variant<With, Bf16>};
}

// The one that apply_pixels() uses.
const PixelsVariant& chosen_variant() {
  static const PixelsVariant chosen = [] {
    const std::vector<PixelsVariant> variants = pixels_variants();
    for (const PixelsVariant& variant : variants)
      if (variant.isa <= cpu_isa()) return variant;
    return variants.back();
  }();
  return chosen;
}

}  // namespace

std::vector<PixelsVariant> pixels_variants() {
  std::vector<PixelsVariant> variants;
  const CpuIsa isa = best_cpu_isa();
  if (isa >= CpuIsa::avx512) variants.push_back(variant_of<Avx512>(CpuIsa::avx512));
  if (isa >= CpuIsa::avx2) variants.push_back(variant_of<Avx2>(CpuIsa::avx2));
  variants.push_back(variant_of<Plain>(CpuIsa::base));
  return variants;
}

void apply_pixels(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                  const std::uint8_t* images, ImageExtent source, ImageExtent out, float* y) {
  chosen_variant().apply(plan, rows, r, images, source, out, y);
}

void apply_pixels(const PixelPlan& plan, std::span<const RowPlan> rows, std::size_t r,
                  const std::uint8_t* images, ImageExtent source, ImageExtent out, Bf16* y) {
  chosen_variant().apply_in_bf16(plan, rows, r, images, source, out, y);
}

}  // namespace warpstep

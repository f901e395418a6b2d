// The operands of a product: how matrices and the windows of images are packed into strips.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_loops.h"

namespace warpstep::cpu {
namespace {

using Rows = std::array<const float*, block_depth>;

// A matrix with two strides.
class StridedOperand final : public Operand {
 public:
  explicit StridedOperand(Strides strides) : s_(std::move(strides)) {
    if (s_.segments.empty()) {
      s_.segments.push_back(0);
      s_.run = std::int64_t{1} << 62;
    }
  }

  std::int64_t scratch(std::int64_t, std::int64_t) const override { return 0; }

  bool packs_by_strips() const override { return s_.depth == 1 || !strides(); }

  const Strides* strides() const override {
    return s_.segments.size() == 1 && s_.segments[0] == 0 ? &s_ : nullptr;
  }

  // Lines of adjacent elements are read once from end to end, which is how memory is fast.
  void pack(const float* data, Range outer, const StripLayout& layout, Range depth, float* scratch,
            float* to) const override {
    if (packs_by_strips()) {
      Operand::pack(data, outer, layout, depth, scratch, to);
      return;
    }
    gemm_loops().pack_lines(data + outer.begin * s_.outer + depth.begin * s_.depth, s_.depth,
                            static_cast<int>(outer.size()), layout, depth.size(), to);
  }

  void pack_strip(const float* data, Range outer, int padded, Range depth, float*,
                  float* to) const override {
    const int width = static_cast<int>(outer.size());
    data += outer.begin * s_.outer;
    Rows rows;
    for (std::int64_t k = depth.begin; k < depth.end;) {
      const std::int64_t segment = k / s_.run, first = k % s_.run;
      const std::int64_t count = std::min(depth.end - k, s_.run - first);
      const float* from = data + s_.segments[static_cast<std::size_t>(segment)] + first * s_.depth;
      if (s_.depth == 1) {
        for (int i = 0; i < width; ++i) rows[static_cast<std::size_t>(i)] = from + i * s_.outer;
        gemm_loops().pack_rows(rows.data(), width, padded, count, to);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          rows[static_cast<std::size_t>(i)] = from + i * s_.depth;
        gemm_loops().pack_columns(rows.data(), width, padded, count, to);
      }
      to += count * padded;
      k += count;
    }
  }

 private:
  Strides s_;
};

alignas(64) constexpr std::array<float, block_depth> zeros{};

// Windows of images with many channels: a tap's channels are adjacent in memory and packed from
// there.
class WideWindows final : public Operand {
 public:
  WideWindows(const Windows& windows, Outer outer) : w_(windows), outer_(outer) {}

  std::int64_t scratch(std::int64_t, std::int64_t) const override { return 0; }

  void pack_strip(const float* data, Range outer, int padded, Range depth, float*,
                  float* to) const override {
    outer_ == Outer::windows ? pack_windows(data, outer, padded, depth, to)
                             : pack_features(data, outer, padded, depth, to);
  }

 private:
  void pack_windows(const float* data, Range outer, int padded, Range depth, float* to) const {
    const int width = static_cast<int>(outer.size());
    std::array<const float*, most_width> rows;
    for_runs(w_, depth, false, [&](const FeatureRun& run, std::int64_t place) {
      WindowCursor at(w_, outer.begin);
      for (int i = 0; i < width; ++i, at.next()) {
        const float* pixel = at.tap(data, run.tap_h, run.tap_w);
        rows[static_cast<std::size_t>(i)] = pixel ? pixel + run.first : zeros.data();
      }
      gemm_loops().pack_rows(rows.data(), width, padded, run.count, to + place * padded);
    });
  }

  // A strip of features may begin in one tap and end in another: each tap's part is packed apart.
  void pack_features(const float* data, Range outer, int padded, Range depth, float* to) const {
    const bool one_tap = outer.begin / w_.channels == (outer.end - 1) / w_.channels;
    if (!one_tap) {
      pack_several_taps(data, outer, padded, depth, to);
      return;
    }
    const std::int64_t tap = outer.begin / w_.channels, first = outer.begin % w_.channels;
    Rows rows;
    WindowCursor at(w_, depth.begin);
    for (std::int64_t k = 0; k < depth.size(); ++k, at.next()) {
      const float* pixel = at.tap(data, tap / w_.taps_w, tap % w_.taps_w);
      rows[static_cast<std::size_t>(k)] = pixel ? pixel + first : zeros.data();
    }
    gemm_loops().pack_columns(rows.data(), static_cast<int>(outer.size()), padded, depth.size(),
                              to);
  }

  void pack_several_taps(const float* data, Range outer, int padded, Range depth, float* to) const {
    WindowCursor at(w_, depth.begin);
    for (std::int64_t k = 0; k < depth.size(); ++k, at.next(), to += padded) {
      for_runs(w_, outer, false, [&](const FeatureRun& run, std::int64_t place) {
        const float* pixel = at.tap(data, run.tap_h, run.tap_w);
        std::copy_n(pixel ? pixel + run.first : zeros.data(), run.count, to + place);
      });
      std::fill(to + outer.size(), to + padded, 0.0F);
    }
  }

  Windows w_;
  Outer outer_;
};

// Windows of images with few channels: a row of taps is adjacent in memory. The features of each
// window are gathered first.
class NarrowWindows final : public Operand {
 public:
  NarrowWindows(const Windows& windows, Outer outer) : w_(windows), outer_(outer) {}

  std::int64_t scratch(std::int64_t width, std::int64_t depth) const override {
    return width * depth;
  }

  void pack_strip(const float* data, Range outer, int padded, Range depth, float* scratch,
                  float* to) const override {
    const bool by_window = outer_ == Outer::windows;
    const Range windows = by_window ? outer : depth, features = by_window ? depth : outer;
    Rows rows;
    WindowCursor at(w_, windows.begin);
    for (std::int64_t i = 0; i < windows.size(); ++i, at.next()) {
      rows[static_cast<std::size_t>(i)] = scratch;
      gather(at, data, features, scratch);
      scratch += features.size();
    }
    const auto pack = by_window ? gemm_loops().pack_rows : gemm_loops().pack_columns;
    pack(rows.data(), static_cast<int>(outer.size()), padded, depth.size(), to);
  }

 private:
  void gather(const WindowCursor& at, const float* data, Range features, float* to) const {
    for_runs(w_, features, true, [&](const FeatureRun& run, std::int64_t place) {
      const std::int64_t h = at.line(run.tap_h);
      if (h < 0 || h >= w_.height)
        std::fill_n(to + place, run.count, 0.0F);
      else if (has_adjacent_taps(w_))
        copy_line(data + at.offset(h, 0), at.column(0) * w_.channels + run.first, run.count,
                  to + place);
      else
        copy_taps(at, data, run.tap_h, run.first, run.count, to + place);
    });
  }

  // The floats [begin, begin + count) of a line of the image, zeros outside of it.
  void copy_line(const float* image_line, std::int64_t begin, std::int64_t count, float* to) const {
    const std::int64_t length = w_.width * w_.channels;
    if (begin >= 0 && begin + count <= length) {
      for (std::int64_t l = 0; l < count; ++l) to[l] = image_line[begin + l];
      return;
    }
    for (std::int64_t l = 0; l < count; ++l) {
      const std::int64_t from = begin + l;
      to[l] = from >= 0 && from < length ? image_line[from] : 0;
    }
  }

  void copy_taps(const WindowCursor& at, const float* data, std::int64_t a, std::int64_t first,
                 std::int64_t count, float* to) const {
    std::int64_t tap = first / w_.channels, channel = first % w_.channels;
    for (std::int64_t l = 0; l < count; ++tap, channel = 0) {
      const std::int64_t end = std::min(count, l + w_.channels - channel);
      const float* pixel = at.tap(data, a, tap);
      for (; l < end; ++l, ++channel) to[l] = pixel ? pixel[channel] : 0;
    }
  }

  Windows w_;
  Outer outer_;
};

}  // namespace

std::unique_ptr<Operand> operand_of(Source source) {
  if (auto* strides = std::get_if<Strides>(&source))
    return std::make_unique<StridedOperand>(std::move(*strides));
  const auto& [windows, outer] = std::get<WindowMatrix>(source);
  // Channels that do not fill vectors: gathering them costs less than packing tap by tap.
  constexpr std::int64_t narrow = 8, uneven = 24;
  if (windows.channels < narrow || (windows.channels < uneven && windows.channels % narrow != 0))
    return std::make_unique<NarrowWindows>(windows, outer);
  return std::make_unique<WideWindows>(windows, outer);
}

void Operand::pack(const float* data, Range outer, const StripLayout& layout, Range depth,
                   float* scratch, float* to) const {
  for (std::int64_t i = outer.begin; i < outer.end; i += layout.width, to += layout.apart) {
    const Range strip{i, std::min(outer.end, i + layout.width)};
    pack_strip(data, strip, layout.filled ? layout.width : static_cast<int>(strip.size()), depth,
               scratch, to);
  }
}

}  // namespace warpstep::cpu

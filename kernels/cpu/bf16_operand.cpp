// Rows and lines of matrices and of windows, without copies where they lie in memory as they are
// needed.
#include "kernels/cpu/bf16_operand.h"

#include <algorithm>
#include <utility>

namespace warpstep::cpu {
namespace {

using Pieces = std::array<Bf16Piece, square>;

class Bf16Matrix final : public Bf16Operand {
 public:
  explicit Bf16Matrix(Strides strides) : s_(std::move(strides)) {
    if (!s_.segments.empty()) return;
    s_.segments.push_back(0);
    s_.run = std::int64_t{1} << 62;
  }

  bool has_rows() const override { return s_.depth == 1; }

  void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                 Bf16* to) const override {
    Pieces pieces;
    const auto rows = static_cast<int>(outer.size());
    for (std::int64_t k = depth.begin; k < depth.end;) {
      const std::int64_t count = std::min(depth.end - k, s_.run - k % s_.run);
      for (std::int64_t i = 0; i < rows; ++i)
        pieces[static_cast<std::size_t>(i)] = {at(data, outer.begin + i, k), 0, count};
      bf16_loops().copy_pieces(pieces.data(), rows, count, stride, to + (k - depth.begin));
      k += count;
    }
  }

  void find_lines(const Bf16* data, Range outer, Range depth, Bf16*, Lines& lines) const override {
    for (std::int64_t k = depth.begin; k < depth.end; ++k)
      lines[static_cast<std::size_t>(k - depth.begin)] = at(data, outer.begin, k);
  }

  const Strides* strides() const override {
    return s_.segments.size() == 1 && s_.segments[0] == 0 ? &s_ : nullptr;
  }

 private:
  const Bf16* at(const Bf16* data, std::int64_t i, std::int64_t k) const {
    return data + i * s_.outer + s_.segments[static_cast<std::size_t>(k / s_.run)] +
           k % s_.run * s_.depth;
  }

  Strides s_;
};

class Bf16Windows final : public Bf16Operand {
 public:
  explicit Bf16Windows(const WindowMatrix& matrix) : w_(matrix.windows), outer_(matrix.outer) {}

  bool has_rows() const override { return outer_ == Outer::windows; }

  void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                 Bf16* to) const override {
    Pieces pieces;
    for_runs(w_, depth, [&](const FeatureRun& run, std::int64_t first) {
      for_pieces(data, outer, run, [&](std::int64_t i, const Bf16Piece& piece) {
        pieces[static_cast<std::size_t>(i)] = piece;
      });
      bf16_loops().copy_pieces(pieces.data(), static_cast<int>(outer.size()), run.count, stride,
                               to + first);
    });
  }

  void find_lines(const Bf16* data, Range outer, Range depth, Bf16* scratch,
                  Lines& lines) const override {
    int runs = 0;
    for_runs(w_, outer, [&](const FeatureRun&, std::int64_t) { ++runs; });
    for_runs(w_, outer, [&](const FeatureRun& run, std::int64_t first) {
      for_pieces(data, depth, run, [&](std::int64_t k, const Bf16Piece& p) {
        const Bf16*& line = lines[static_cast<std::size_t>(k)];
        if (runs == 1 && p.end - p.begin == run.count) {
          line = p.from;
        } else if (runs == 1 && p.begin == p.end) {
          line = zeros.data();
        } else {
          bf16_loops().copy_pieces(&p, 1, run.count, 0, scratch + k * square + first);
          line = scratch + k * square;
        }
      });
    });
  }

 private:
  // Calls visit(index, the part of the run that lies in the image) for some windows, a line of the
  // grid at a time.
  template <class Visit>
  void for_pieces(const Bf16* data, Range windows, const FeatureRun& run, Visit visit) const {
    const std::int64_t width = w_.width * w_.pitch, step = w_.stride * w_.pitch;
    WindowCursor at(w_, windows.begin);
    for (std::int64_t k = 0; k < windows.size();) {
      const std::int64_t end = std::min(windows.size(), k + w_.columns - at.j);
      const std::int64_t h = at.line(run.tap_h);
      if (h < 0 || h >= w_.height) {
        for (; k < end; ++k) visit(k, Bf16Piece{data, 0, 0});
      } else {
        const Bf16* line = data + at.offset(h, 0);
        std::int64_t e =
            at.column(run.tap_w) * w_.pitch + run.first;  // the run's place in the line
        const auto clipped = [&] {
          const std::int64_t first = std::clamp(-e, std::int64_t{0}, run.count);
          visit(k, Bf16Piece{line + (e + first), first, std::clamp(width - e, first, run.count)});
        };
        for (; k < end && e < 0; ++k, e += step) clipped();
        for (; k < end && e + run.count <= width; ++k, e += step)
          visit(k, Bf16Piece{line + e, 0, run.count});
        for (; k < end; ++k, e += step) clipped();
      }
      at.j = w_.columns - 1;
      at.next();
    }
  }

  Windows w_;
  Outer outer_;
};

}  // namespace

std::shared_ptr<const Bf16Operand> bf16_operand(Source source) {
  if (auto* strides = std::get_if<Strides>(&source))
    return std::make_shared<Bf16Matrix>(std::move(*strides));
  return std::make_shared<Bf16Windows>(std::get<WindowMatrix>(source));
}

}  // namespace warpstep::cpu

// How the operands of products of bf16 (gemm_bf16.h) are read for packing.
#pragma once

#include <array>
#include <memory>

#include "engine/core/bf16.h"
#include "kernels/cpu/bf16_loops.h"
#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {

// That is packed at once, at most: a strip and a panel of it fit into a first-level cache of 48
// KiB.
constexpr std::int64_t block_depth = 320;

alignas(64) constexpr std::array<Bf16, square> zeros{};
using Lines = std::array<const Bf16*, block_depth>;

// `outer` numbers the rows of a or the columns of b.
class Bf16Operand {
 public:
  virtual ~Bf16Operand() = default;
  // Whether the depth is what is adjacent in memory; then it is read as rows, else as lines.
  virtual bool has_rows() const = 0;
  // to [outer, stride] in its first columns = rows of the operand.
  virtual void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                         Bf16* to) const = 0;
  // For each k of the depth, where the elements of `outer`, a square at most, lie next to each
  // other: in the operand, or copied to scratch [depth, square].
  virtual void find_lines(const Bf16* data, Range outer, Range depth, Bf16* scratch,
                          Lines& lines) const = 0;
  // The strides, if the operand is a plain matrix of rows.
  virtual const Strides* plain() const { return nullptr; }
};
std::shared_ptr<const Bf16Operand> bf16_operand(Source source);

// Whether a row of taps is adjacent in memory.
inline bool has_adjacent_taps(const Windows& w) {
  return w.step_w == 1 && w.pitch == w.channels;
}

// Features that are adjacent in memory: of a row of taps, or of one tap.
struct FeatureRun {
  std::int64_t tap_h, tap_w, first, count;
};
template <class Visit>  // visit(run, its place in the range)
void for_runs(const Windows& w, Range features, Visit visit) {
  const bool adjacent = has_adjacent_taps(w);
  const std::int64_t line = adjacent ? w.taps_w * w.channels : w.channels;
  for (std::int64_t f = features.begin; f < features.end;) {
    const std::int64_t group = f / line, first = f % line;
    const std::int64_t count = std::min(features.end - f, line - first);
    visit(adjacent ? FeatureRun{group, 0, first, count}
                   : FeatureRun{group / w.taps_w, group % w.taps_w, first, count},
          f - features.begin);
    f += count;
  }
}

}  // namespace warpstep::cpu

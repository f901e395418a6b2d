// Memory that a product reads soon. Its tiles ask for it line by line while they compute, so that
// memory and arithmetic work at the same time and the lines wait in the second-level cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {

// `count` lines of memory that a tile asks for while it computes, at its first steps: `run` lines,
// `stride` bytes apart, then as many a jump further. `left` are left of the run at hand.
struct LinesAhead {
  const char* at = nullptr;
  std::int64_t stride = 0, run = 0, jump = 0, count = 0, left = run;
};

class Ahead {
 public:
  // A block of a matrix of strides `s`, as Operand::pack() reads it; none, if `s` is null, of the
  // windows of images, which are left to the caches.
  template <class T>
  void add(const Strides* s, const T* data, Range outer, Range depth) {
    if (!s || count_ == most || outer.size() <= 0 || depth.size() <= 0) return;
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
    const bool in_rows = s->depth == 1;
    const std::int64_t rows = in_rows ? outer.size() : depth.size(),
                       row = in_rows ? depth.size() : outer.size(),
                       stride = in_rows ? s->outer : s->depth;
    const auto* begin =
        reinterpret_cast<const char*>(data + outer.begin * s->outer + depth.begin * s->depth);
    if (stride == row || rows == 1)
      blocks_[count_++] = {begin, lines(rows * row * bytes), 1, line_bytes};
    else
      blocks_[count_++] = {begin, rows, lines(row * bytes), stride * bytes};
  }
  // What a tile of so many steps asks for: the same line of up to as many rows, or several lines of
  // all rows where these are fewer. Nothing, when nothing is left.
  LinesAhead next(std::int64_t steps) {
    while (at_ < count_ && blocks_[at_].lines == 0) ++at_;
    if (at_ == count_) return {};
    Block& block = blocks_[at_];
    if (block.rows < steps) {
      const std::int64_t columns = std::min(block.lines, (steps + block.rows - 1) / block.rows);
      const LinesAhead asked{block.begin, block.stride, block.rows,
                             line_bytes - block.rows * block.stride,
                             std::min(steps, columns * block.rows)};
      block.lines -= columns;
      block.begin += columns * line_bytes;
      return asked;
    }
    const std::int64_t count = std::min(steps, block.rows - row_);
    const LinesAhead asked{block.begin + row_ * block.stride, block.stride, count, 0, count};
    row_ += count;
    if (row_ == block.rows) {
      row_ = 0;
      --block.lines;
      block.begin += line_bytes;
    }
    return asked;
  }

 private:
  static constexpr std::int64_t line_bytes = 64;
  static constexpr std::size_t most = 2;
  static std::int64_t lines(std::int64_t bytes) { return (bytes + line_bytes - 1) / line_bytes; }
  struct Block {
    const char* begin = nullptr;
    std::int64_t rows = 0, lines = 0, stride = 0;
  };
  std::array<Block, most> blocks_;
  std::size_t count_ = 0, at_ = 0;
  std::int64_t row_ = 0;
};

}  // namespace warpstep::cpu

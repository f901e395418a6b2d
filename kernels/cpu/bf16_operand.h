// How the operands of products of bf16 (gemm_bf16.h) are read for packing.
#pragma once

#include <array>
#include <memory>

#include "engine/core/bf16.h"
#include "kernels/cpu/bf16_loops.h"
#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {

alignas(64) constexpr std::array<Bf16, square> zeros{};
using Lines = std::array<const Bf16*, bf16_block_depth>;

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
  // The strides, if the operand is a matrix without segments.
  virtual const Strides* strides() const { return nullptr; }
  // The same, if it is one of rows.
  const Strides* plain() const { return has_rows() ? strides() : nullptr; }
};
std::shared_ptr<const Bf16Operand> bf16_operand(Source source);

}  // namespace warpstep::cpu

// The matrix product of gemm.h for bf16: products and sums in float, rounded to bf16 once at the
// end. On AMX (TDPBF16PS, 16x16 sums per instruction) or AVX512_BF16 (VDPBF16PS).
#pragma once

#include <array>
#include <span>
#include <type_traits>

#include "engine/core/bf16.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {

// An operand in bf16; see gemm_bf16.cpp.
class Bf16Operand;

class Bf16Product {
 public:
  using Shape = ProductShape;
  // Throws DeviceError on a CPU without these instructions.
  Bf16Product(Shape shape, Source a, Source b, PixelGrid c, bool relu = false);

  std::size_t workspace_bytes() const;
  double flops() const { return shape_.flops(); }
  // `bias` may be null.
  void run(const Bf16* a, const Bf16* b, const Bf16* bias, Bf16* c, void* workspace) const;

  static std::string implementation();  // with the instruction set

 private:
  struct Part {
    Range rows, panels, depth;  // rows: images, where they are read directly
    const Bf16 *a, *b, *bias;
    Bf16* c;
    float* sums;  // of all of c, where other parts have the rest of the depth; else null
    std::byte* scratch;
  };
  // Where the scratch of a part has its pieces, in bytes: panels of b first.
  struct Scratch {
    std::size_t strip, lines, sums, bytes;
  };
  struct Direct;
  static std::shared_ptr<const Direct> direct_images(const Source& a, Shape shape);
  ProductParts choose_parts(int threads) const;
  bool reads_a_directly() const;
  Scratch scratch() const;
  std::int64_t row_block() const;
  std::int64_t panel_count() const;
  std::int64_t tiles() const;
  void run_part(const Part& part) const;
  Ahead next_reads(const Part& part, Range rows, Range strip, Range panels, Range depth) const;
  void run_block(const Part& part, Range rows, Range panels, Range depth) const;
  void run_images(const Part& part) const;
  void pack_b(const Part& part, Range panels, std::span<const Range> depths) const;
  // One range of the depth, of panels that have `all` of it.
  void pack_rows_of_b(const Part& part, Range panels, Range depth, std::int64_t all,
                      Bf16* to) const;
  void pack_lines_of_b(const Part& part, Range panels, Range depth, std::int64_t all,
                       Bf16* to) const;
  const Bf16* strip_of_a(const Part& part, Range rows, Range depth, std::int64_t& stride) const;
  std::array<Bf16*, 32> row_pointers(Bf16* c, Range rows) const;
  void finish(const Bf16* bias, Bf16* const* c, std::int64_t rows, Range columns, const float* sums,
              std::int64_t apart, std::int64_t parts) const;
  void add_parts(const Bf16* bias, Bf16* c, const float* sums) const;

  Shape shape_;
  std::vector<Range> panels_;
  std::shared_ptr<const Direct> direct_;
  std::shared_ptr<const Bf16Operand> a_, b_;
  PixelGrid grid_;
  bool relu_, reads_a_;
  ProductParts parts_;
};

// The product of elements that are stored as T, float or Bf16.
template <class T>
using ProductOf = std::conditional_t<std::is_same_v<T, float>, Product, Bf16Product>;

}  // namespace warpstep::cpu

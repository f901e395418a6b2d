// The matrix product of gemm.h for bf16: products and sums in float, rounded to bf16 once at the
// end. On AMX (TDPBF16PS, 16x16 sums per instruction) or AVX512_BF16 (VDPBF16PS).
#pragma once

#include <array>
#include <type_traits>

#include "engine/core/bf16.h"
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
  // `bias` may be null.
  void run(const Bf16* a, const Bf16* b, const Bf16* bias, Bf16* c, void* workspace) const;

  static std::string implementation();  // with the instruction set

 private:
  struct Parts {
    std::int64_t m, n, k;
    std::int64_t count() const { return m * n * k; }
  };
  struct Part {
    Range rows, columns, depth;
    const Bf16 *a, *b, *bias;
    Bf16* c;
    float* sums;  // of all of c, where other parts have the rest of the depth; else null
    std::byte* scratch;
  };
  // Where the scratch of a part has its pieces, in bytes.
  struct Scratch {
    std::size_t strip, sums, lines, bytes;
  };
  Parts choose_parts(int threads) const;
  bool reads_a_directly() const;
  Scratch scratch() const;
  std::int64_t row_block() const;
  std::int64_t tiles() const;
  void run_part(const Part& part) const;
  void run_block(const Part& part, Range rows, Range columns, Range depth) const;
  void pack_b(const Part& part, Range columns, Range depth) const;
  const Bf16* strip_of_a(const Part& part, Range rows, Range depth, std::int64_t& stride) const;
  void finish(const Bf16* bias, Bf16* c, Range rows, Range columns, const float* sums,
              std::int64_t apart, std::int64_t parts) const;

  Shape shape_;
  std::shared_ptr<const Bf16Operand> a_, b_;
  PixelGrid grid_;
  bool relu_, direct_a_;
  Parts parts_;
};

// The product of elements that are stored as T, float or Bf16.
template <class T>
using ProductOf = std::conditional_t<std::is_same_v<T, float>, Product, Bf16Product>;

}  // namespace warpstep::cpu

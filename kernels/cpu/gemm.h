// Our own matrix product: c = a b in float, packed and blocked for the caches, on the OpenMP team.
// The operands describe how their elements lie in memory: a matrix with any two strides, or the
// windows of images, so that a convolution is one product without a matrix of columns in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace warpstep::cpu {

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// The pixels of a batch of images, or the rows of a matrix, numbered row by row, and where each
// begins: n * image + h * row + w * pixel, in floats.
struct PixelGrid {
  std::int64_t height, width;
  std::int64_t image, row, pixel;

  static PixelGrid matrix(std::int64_t row_stride) {
    return {1, std::int64_t{1} << 62, 0, 0, row_stride};
  }
  std::int64_t offset(std::int64_t index) const {
    if (row == 0) return index * pixel;
    const std::int64_t line = index / width;
    return line / height * image + line % height * row + index % width * pixel;
  }
};

// Element (i, k) is data[i * outer + segments[k / run] + k % run * depth]; no segments: i * outer +
// k * depth. One of the strides is 1.
struct Strides {
  std::int64_t outer, depth;
  std::vector<std::int64_t> segments{};
  std::int64_t run = 0;
};

// One operand of a product: `outer` numbers the rows of a or the columns of b, `depth` is summed
// over.
class Operand {
 public:
  virtual ~Operand() = default;
  // Floats that pack() needs beside its result, for strips of at most `width`.
  virtual std::int64_t scratch(std::int64_t width, std::int64_t depth) const = 0;
  // to [strips][depth, width]: the operand's `outer` range in strips of `width`, the last of which
  // is narrower, or filled with zeros if `fill`.
  virtual void pack(const float* data, Range outer, int width, bool fill, Range depth,
                    float* scratch, float* to) const;
  // The strides, if the operand is a plain matrix.
  virtual const Strides* strides() const { return nullptr; }

 private:
  // One strip: to [depth, padded].
  virtual void pack_strip(const float* data, Range outer, int padded, Range depth, float* scratch,
                          float* to) const = 0;
};
std::unique_ptr<Operand> strided(Strides strides);

// Windows of images [N, height, width, channels of pitch], one for each (n, i, j) of a grid of
// [rows, columns] per image. A window has taps (a, b) at pixel (i * stride + top + a * step_h,
// j * stride + left + b * step_w); taps outside of the image are zero. Its features are [taps_h,
// taps_w, channels].
struct Windows {
  std::int64_t height, width, pitch, channels;
  std::int64_t rows, columns, stride;
  std::int64_t taps_h, taps_w, top, left, step_h, step_w;

  std::int64_t features() const { return taps_h * taps_w * channels; }
};
// The matrix [windows, features], with the windows or the features as outer dimension.
enum class Outer : std::uint8_t { windows, features };
std::unique_ptr<Operand> windowed(const Windows& windows, Outer outer);

// c [m, n] = a [m, k] b [k, n] (+ bias [n]) (then max(0, c)); an empty sum is 0. The rows of c lie
// on a grid; their columns are adjacent. Equal thread counts give equal bits.
class Product {
 public:
  struct Shape {
    std::int64_t m, n, k;
  };
  Product(Shape shape, std::unique_ptr<Operand> a, std::unique_ptr<Operand> b, PixelGrid c,
          bool relu = false);

  std::size_t workspace_bytes() const;
  // `bias` may be null.
  void run(const float* a, const float* b, const float* bias, float* c, void* workspace) const;

  static std::string implementation();  // with the instruction set

 private:
  struct Parts {
    std::int64_t m, n, k;
    std::int64_t count() const { return m * n * k; }
  };
  Parts choose_parts(int threads) const;
  // Whether the product reads a as it lies in memory: packing costs more than it saves where each
  // element is used only a few times.
  bool reads_a_directly() const;
  void run_part(Range rows, Range columns, Range depth, const float* a, const float* b,
                const float* bias, const PixelGrid& grid, float* c, float* scratch) const;
  struct Scratch {
    std::int64_t panels, rest,
        floats;  // where b's panels and the operands' scratch begin; the size
  };
  Scratch scratch() const;  // of one thread

  Shape shape_;
  std::unique_ptr<Operand> a_, b_;
  PixelGrid grid_;
  bool relu_, direct_a_;
  Parts parts_;
};

}  // namespace warpstep::cpu

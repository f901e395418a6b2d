// Our own matrix product: c = a b in float, packed and blocked for the caches, on the OpenMP team.
// The operands describe how their elements lie in memory: a matrix with any two strides, or the
// windows of images, so that a convolution is one product without a matrix of columns in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace warpstep::cpu {

// Of what is packed at a time, at most. In bf16 a strip and a panel of it fit into a first-level
// cache of 48 KiB.
constexpr std::int64_t block_depth = 384, bf16_block_depth = 320;

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Part `index` of `parts` of a range that is divided into units.
inline Range part_of(std::int64_t total, std::int64_t unit, std::int64_t parts,
                     std::int64_t index) {
  const std::int64_t units = (total + unit - 1) / unit;
  return {std::min(total, units * index / parts * unit),
          std::min(total, units * (index + 1) / parts * unit)};
}

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

// Whether a row of taps is adjacent in memory.
inline bool has_adjacent_taps(const Windows& w) {
  return w.step_w == 1 && w.pitch == w.channels;
}

// Features of a row of taps, or of one tap.
struct FeatureRun {
  std::int64_t tap_h, tap_w, first, count;
};
template <class Visit>  // visit(run, its place in the range)
void for_runs(const Windows& w, Range features, bool of_rows, Visit visit) {
  const std::int64_t line = of_rows ? w.taps_w * w.channels : w.channels;
  for (std::int64_t f = features.begin; f < features.end;) {
    const std::int64_t group = f / line, first = f % line;
    const std::int64_t count = std::min(features.end - f, line - first);
    visit(of_rows ? FeatureRun{group, 0, first, count}
                  : FeatureRun{group / w.taps_w, group % w.taps_w, first, count},
          f - features.begin);
    f += count;
  }
}
// Of features that are adjacent in memory.
template <class Visit>
void for_runs(const Windows& w, Range features, Visit visit) {
  for_runs(w, features, has_adjacent_taps(w), visit);
}

// Consecutive windows, one after the other.
struct WindowCursor {
  const Windows& w;
  std::int64_t image, i, j;

  WindowCursor(const Windows& windows, std::int64_t index)
      : w(windows),
        image(index / (w.rows * w.columns)),
        i(index / w.columns % w.rows),
        j(index % w.columns) {}
  void next() {
    if (++j < w.columns) return;
    j = 0;
    if (++i < w.rows) return;
    i = 0;
    ++image;
  }
  std::int64_t line(std::int64_t a) const { return i * w.stride + w.top + a * w.step_h; }
  std::int64_t column(std::int64_t b) const { return j * w.stride + w.left + b * w.step_w; }
  // Where a pixel of the window's image begins.
  std::int64_t offset(std::int64_t h, std::int64_t v) const {
    return ((image * w.height + h) * w.width + v) * w.pitch;
  }
  // The pixel of tap (a, b), or null if it is outside of the image.
  template <class T>
  const T* tap(const T* data, std::int64_t a, std::int64_t b) const {
    const std::int64_t h = line(a), v = column(b);
    if (h < 0 || h >= w.height || v < 0 || v >= w.width) return nullptr;
    return data + offset(h, v);
  }
};

// The matrix [windows, features], with the windows or the features as outer dimension.
enum class Outer : std::uint8_t { windows, features };
struct WindowMatrix {
  Windows windows;
  Outer outer;
};

// How an operand of a product lies in memory.
using Source = std::variant<Strides, WindowMatrix>;
inline Source strided(Strides strides) {
  return strides;
}
inline Source windowed(const Windows& windows, Outer outer) {
  return WindowMatrix{windows, outer};
}

// Where pack() writes: strips of `width` of the outer dimension, `apart` floats from one to the
// next. The last strip is narrower, or filled with zeros.
struct StripLayout {
  int width;
  bool filled;
  std::int64_t apart;

  static StripLayout adjacent(int width, bool filled, std::int64_t depth) {
    return {width, filled, width * depth};
  }
};

// One operand of a product: `outer` numbers the rows of a or the columns of b, `depth` is summed
// over.
class Operand {
 public:
  virtual ~Operand() = default;
  // Floats that pack() needs beside its result, for strips of at most `width`.
  virtual std::int64_t scratch(std::int64_t width, std::int64_t depth) const = 0;
  // to [strips][depth, width]: the operand's `outer` range.
  virtual void pack(const float* data, Range outer, const StripLayout& layout, Range depth,
                    float* scratch, float* to) const;
  // Whether pack() reads one strip after the other, so that it may as well be called for each.
  virtual bool packs_by_strips() const { return true; }
  // The strides, if the operand is a plain matrix.
  virtual const Strides* strides() const { return nullptr; }

 private:
  // One strip: to [depth, padded].
  virtual void pack_strip(const float* data, Range outer, int padded, Range depth, float* scratch,
                          float* to) const = 0;
};

std::unique_ptr<Operand> operand_of(Source source);

// c is [m, n], the sums run over k.
struct ProductShape {
  std::int64_t m, n, k;
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

// Parts of a product along each axis: for one thread each, or tasks that threads share.
struct ProductParts {
  std::int64_t m, n, k;
  std::int64_t count() const { return m * n * k; }
};

// Tries every way to divide a product among the threads: the first of least cost(m, n, k).
template <class Cost>
ProductParts cheapest_parts(int threads, bool splits_depth, Cost cost) {
  ProductParts best{1, 1, 1};
  double least = 0;
  for (std::int64_t m = 1; m <= threads; ++m)
    for (std::int64_t n = 1; m * n <= threads; ++n)
      for (std::int64_t k = 1; m * n * k <= threads; ++k) {
        if (k > 1 && !splits_depth) break;
        const double of_parts = cost(m, n, k);
        if (least > 0 && of_parts >= least) continue;
        least = of_parts;
        best = {m, n, k};
      }
  return best;
}

// c [m, n] = a [m, k] b [k, n] (+ bias [n]) (then max(0, c)); an empty sum is 0. The rows of c lie
// on a grid; their columns are adjacent. Equal thread counts give equal bits.
class Product {
 public:
  using Shape = ProductShape;
  Product(Shape shape, Source a, Source b, PixelGrid c, bool relu = false);

  std::size_t workspace_bytes() const;
  double flops() const { return shape_.flops(); }
  // `bias` may be null.
  void run(const float* a, const float* b, const float* bias, float* c, void* workspace) const;

  static std::string implementation();           // with the instruction set
  ProductParts tasks() const { return tasks_; }  // that its threads divide, and may share

 private:
  // How a strip of a gets into the first-level cache. Packing costs more than it saves where each
  // element is used only a few times: the product then reads rows of a where they are, or copies.
  enum class ReadsA : std::uint8_t { packed, copied, in_place };
  void divide(bool splits_depth);
  ProductParts choose_parts(int threads, bool splits_depth) const;
  ProductParts choose_tasks() const;
  bool may_share_b(int threads) const;
  ProductParts pack_tasks() const;
  std::int64_t block_floats() const;   // of all of b in the largest block of the depth, packed
  std::int64_t shared_floats() const;  // of all of b, packed
  ReadsA choose_reads_a() const;
  bool swaps() const;
  bool is_dots() const;
  void run_dots(const float* a, const float* b, const float* bias, float* c) const;
  void run_swapped(const float* a, const float* b, const float* bias, float* c,
                   float* workspace) const;
  // Calls done(rows, columns) on the thread of each part or task when that is in c, or its sums.
  template <class Done>
  void run_parts(const float* a, const float* b, const float* bias, float* c, float* workspace,
                 Done done) const;
  void pack_shared(const float* b, float* scratch, float* shared) const;
  void run_part(Range rows, Range columns, Range depth, const float* a, const float* b,
                const float* shared, const float* bias, const PixelGrid& grid, float* c,
                float* scratch) const;
  struct Scratch {
    std::int64_t panels, rest,
        floats;  // where b's panels and the operands' scratch begin; the size
  };
  Scratch scratch() const;  // of one thread

  Shape shape_;
  std::unique_ptr<Operand> a_, b_;
  PixelGrid grid_;
  bool relu_;
  ReadsA reads_a_;
  bool by_dots_, shares_b_ = false;  // shares: the threads pack b together, once
  ProductParts parts_{}, tasks_{};
  std::unique_ptr<const Product> swapped_;  // c transposed, or null
};

}  // namespace warpstep::cpu

// Products of bf16 against sums in double of the same numbers, element by element: they differ by
// the rounding of the result and by that of the sums in float, and by nothing else.
#include "kernels/cpu/gemm_bf16.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/core/cpu_isa.h"
#include "engine/core/random.h"
#include "kernels/cpu/bf16_loops.h"

namespace warpstep::cpu {
namespace {

using Element = std::function<std::int64_t(std::int64_t i, std::int64_t k)>;  // below 0: zero

std::vector<Bf16> numbers(std::int64_t count, std::uint32_t what) {
  std::vector<Bf16> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = narrowed(2 * uniform(draw(1, Purpose::synthetic, what, i)[0]) - 1);
  return all;
}

Element at(const Strides& s) {
  return [s](std::int64_t i, std::int64_t k) {
    if (s.segments.empty()) return i * s.outer + k * s.depth;
    return i * s.outer + s.segments[static_cast<std::size_t>(k / s.run)] + k % s.run * s.depth;
  };
}

std::int64_t pixel_of(const Windows& w, std::int64_t window, std::int64_t feature) {
  const WindowCursor cursor(w, window);
  const std::int64_t tap = feature / w.channels, h = cursor.line(tap / w.taps_w),
                     v = cursor.column(tap % w.taps_w);
  if (h < 0 || h >= w.height || v < 0 || v >= w.width) return -1;
  return cursor.offset(h, v) + feature % w.channels;
}
Element at(const WindowMatrix& m) {
  return [m](std::int64_t i, std::int64_t k) {
    return m.outer == Outer::windows ? pixel_of(m.windows, i, k) : pixel_of(m.windows, k, i);
  };
}

struct Operand16 {
  Source source;
  std::int64_t elements;
};

class Bf16Products : public testing::Test {
 protected:
  void SetUp() override {
    if (bf16_isa() == Bf16Isa::none) GTEST_SKIP() << "no bf16 in " << cpu_isa_text();
  }
  void TearDown() override { omp_set_num_threads(threads_); }

  void expect_exact(ProductShape shape, const Operand16& a, const Operand16& b, bool bias,
                    bool relu) const;

  const int threads_ = omp_get_max_threads();
};

void Bf16Products::expect_exact(ProductShape shape, const Operand16& a, const Operand16& b,
                                bool bias, bool relu) const {
  const std::vector<Bf16> left = numbers(a.elements, 1), right = numbers(b.elements, 2),
                          added = numbers(shape.n, 3);
  const Bf16Product product(shape, a.source, b.source, PixelGrid::matrix(shape.n), relu);
  std::vector<Bf16> c(static_cast<std::size_t>(shape.m * shape.n));
  // Garbage that a product must not read: it would make NaN of every number.
  std::vector<std::uint64_t> workspace(product.workspace_bytes() / 8 + 1, ~std::uint64_t{0});
  product.run(left.data(), right.data(), bias ? added.data() : nullptr, c.data(), workspace.data());
  const auto element = [](const std::vector<Bf16>& all, std::int64_t index) {
    return index < 0 ? 0.0 : static_cast<double>(widened(all[static_cast<std::size_t>(index)]));
  };
  const auto visit = [](const Source& source) {
    return std::visit([](const auto& s) { return at(s); }, source);
  };
  const Element of_a = visit(a.source), of_b = visit(b.source);
  for (std::int64_t i = 0; i < shape.m; ++i)
    for (std::int64_t j = 0; j < shape.n; ++j) {
      double sum = bias ? element(added, j) : 0, size = std::abs(sum);
      for (std::int64_t k = 0; k < shape.k; ++k) {
        const double term = element(left, of_a(i, k)) * element(right, of_b(j, k));
        sum += term;
        size += std::abs(term);
      }
      if (relu) sum = std::max(0.0, sum);
      const double found = element(c, i * shape.n + j);
      const double rounding =
          0x1p-8 * std::abs(sum) + 0x1p-23 * std::sqrt(static_cast<double>(shape.k) + 1) * size;
      ASSERT_NEAR(found, sum, 1.01 * rounding + 1e-37)
          << "element " << i << ", " << j << " of " << shape.m << "x" << shape.n << "x" << shape.k;
    }
}

Windows windows(std::int64_t image, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
                std::int64_t padding, std::int64_t dilation = 1) {
  const std::int64_t out = (image + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  return {image,  image,  channels, channels, out,      out,     stride,
          kernel, kernel, -padding, -padding, dilation, dilation};
}

// The rounding of each addition to a long sum of equal terms goes the same way.
TEST_F(Bf16Products, OfALargeDepthLoseNoDigits) {
  omp_set_num_threads(1);
  constexpr std::int64_t depth = 1 << 19, columns = 16;
  const std::vector<Bf16> a(depth, narrowed(1.3F)), b(depth * columns, narrowed(1));
  const Bf16Product product({1, columns, depth}, Strides{depth, 1}, Strides{1, columns},
                            PixelGrid::matrix(columns), false);
  std::vector<Bf16> c(columns);
  std::vector<std::uint64_t> workspace(product.workspace_bytes() / 8 + 1);
  product.run(a.data(), b.data(), nullptr, c.data(), workspace.data());
  const double sum = static_cast<double>(widened(a[0])) * depth;
  for (const Bf16 found : c) EXPECT_NEAR(widened(found), sum, 0x1p-9 * sum);
}

TEST_F(Bf16Products, OfMatricesWithAnyStrides) {
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {5, 7, 3},
                                  {32, 32, 32},
                                  {33, 65, 31},
                                  {17, 16, 320},
                                  {70, 90, 700},
                                  {64, 200, 64},
                                  {3, 40, 2000},
                                  {40, 33, 0}})
      for (const bool rows_of_a : {false, true})
        for (const bool rows_of_b : {false, true}) {
          const Strides a = rows_of_a ? Strides{k, 1} : Strides{1, m},
                        b = rows_of_b ? Strides{k, 1} : Strides{1, n};
          expect_exact({m, n, k}, {a, m * k}, {b, n * k}, rows_of_a, rows_of_b);
        }
  }
}

TEST_F(Bf16Products, OfMatricesInSegments) {
  const Strides rows{300, 1, {200, 0, 100}, 21}, lines{1, 40, {400, 0, 4000}, 10};
  expect_exact({40, 50, 63}, {rows, 40 * 300}, {rows, 50 * 300}, true, false);
  expect_exact({40, 33, 30}, {lines, 4400}, {lines, 4400}, false, true);
}

// Three images and more than a block of them; with enough images they are read directly.
TEST_F(Bf16Products, OfWindows) {
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    for (const std::int64_t channels : {1, 3, 8, 20, 32, 72})
      for (const Windows& w : {windows(8, channels, 3, 1, 1), windows(6, channels, 3, 2, 1),
                               windows(7, channels, 5, 1, 2), windows(9, channels, 3, 1, 0),
                               windows(9, channels, 3, 1, 2, 2), windows(4, channels, 1, 2, 0)}) {
        const std::int64_t images = 3, rows = images * w.rows * w.columns, depth = w.features(),
                           pixels = images * w.height * w.width * w.pitch;
        expect_exact({rows, 37, depth}, {windowed(w, Outer::windows), pixels},
                     {Strides{depth, 1}, 37 * depth}, true, channels == 8);
        expect_exact({21, depth, rows}, {Strides{1, 21}, 21 * rows},
                     {windowed(w, Outer::features), pixels}, false, false);
        expect_exact({depth, 21, rows}, {windowed(w, Outer::features), pixels},
                     {Strides{1, 21}, 21 * rows}, false, false);
      }
  }
}

// An infinity in one image, or in one column, stays there.
TEST_F(Bf16Products, KeepRowsApart) {
  const std::int64_t m = 40, n = 34, k = 64;
  std::vector<Bf16> a = numbers(m * k, 1), b = numbers(n * k, 2);
  a[static_cast<std::size_t>(7 * k + 3)] = narrowed(std::numeric_limits<float>::infinity());
  const Bf16Product product({m, n, k}, strided({k, 1}), strided({k, 1}), PixelGrid::matrix(n));
  std::vector<Bf16> c(static_cast<std::size_t>(m * n));
  std::vector<std::uint64_t> workspace(product.workspace_bytes() / 8 + 1);
  product.run(a.data(), b.data(), nullptr, c.data(), workspace.data());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      EXPECT_EQ(std::isfinite(widened(c[static_cast<std::size_t>(i * n + j)])), i != 7);
}

// Ties, infinities, NaN, numbers that round up to infinity and denormals, which are flushed as in
// all of a step, in rows of every length.
TEST_F(Bf16Products, RowsAreRoundedToTheNearest) {
  constexpr std::int64_t rows = 3, apart = 80, guard = 0x7777;
  constexpr std::array<std::uint32_t, 15> special{0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF,
                                                  0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
                                                  0xFFC12345, 0x00000000, 0x80000000, 0x3EAAAAAB,
                                                  0x007FFFFF, 0x80400000, 0x00800000};
  std::vector<float> from(rows * apart);
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i] = std::bit_cast<float>(special[i % special.size()]);
  for (std::int64_t columns = 1; columns <= 70; ++columns) {
    std::vector<Bf16> to(rows * apart, Bf16{guard});
    bf16_loops().round_rows(from.data(), apart, rows, columns, to.data(), apart);
    for (std::int64_t i = 0; i < rows * apart; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float number =
          std::fpclassify(from[at]) == FP_SUBNORMAL ? std::copysign(0.0F, from[at]) : from[at];
      const Bf16 expected = i % apart < columns ? narrowed(number) : Bf16{guard};
      EXPECT_EQ(to[at].bits, expected.bits) << columns << " columns, element " << i;
    }
  }
}

}  // namespace
}  // namespace warpstep::cpu

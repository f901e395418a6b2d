// Products of floats against sums in double, at the edges of their tiles, strips and blocks, with
// rows or columns of either operand adjacent in memory.
#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/core/random.h"

namespace warpstep::cpu {
namespace {

struct Factor {
  Strides strides;  // of (i, k)
  std::vector<float> elements;

  Factor(std::int64_t outer, std::int64_t depth, bool has_rows, std::int64_t pitch,
         std::uint32_t what)
      : strides(has_rows ? Strides{depth + pitch, 1} : Strides{1, outer + pitch}),
        elements(static_cast<std::size_t>(has_rows ? outer * (depth + pitch)
                                                   : depth * (outer + pitch))) {
    for (std::size_t i = 0; i < elements.size(); ++i)
      elements[i] = 2 * uniform(draw(1, Purpose::synthetic, what, i)[0]) - 1;
  }
  double at(std::int64_t i, std::int64_t k) const {
    return elements[static_cast<std::size_t>(i * strides.outer + k * strides.depth)];
  }
};

// The last place, and those about the edges of tiles and blocks, and of tasks that threads share.
std::vector<std::int64_t> some_of(std::int64_t count) {
  std::vector<std::int64_t> places;
  for (const std::int64_t edge : {0, 14, 32, 64, 128, 252, 256, 384, 504, 512})
    for (const std::int64_t at : {edge - 1, edge, edge + 1})
      if (at >= 0 && at < count) places.push_back(at);
  for (std::int64_t eighth = 1; eighth < 8; ++eighth)
    for (const std::int64_t at : {count * eighth / 8 - 1, count * eighth / 8 + 6})
      if (count > 1000) places.push_back(at);
  places.push_back(count - 1);
  return places;
}

void expect_product(ProductShape s, bool a_has_rows, bool b_has_rows, std::int64_t pitch) {
  constexpr std::size_t guard = 32;
  const bool relu = a_has_rows != b_has_rows, has_bias = pitch == 0;
  constexpr float untouched = 77;
  const Factor a(s.m, s.k, a_has_rows, pitch, 1), b(s.n, s.k, b_has_rows, pitch, 2);
  const Factor bias(s.n, 1, true, 0, 3);
  const Product product(s, a.strides, b.strides, PixelGrid::matrix(s.n), relu);
  std::vector<float> c(static_cast<std::size_t>(s.m * s.n) + guard, untouched);
  std::vector<float> workspace(product.workspace_bytes() / sizeof(float) + guard, untouched);
  std::vector<float> again = c;
  for (float* const result : {c.data(), again.data()})
    product.run(a.elements.data(), b.elements.data(), has_bias ? bias.elements.data() : nullptr,
                result, workspace.data());
  const auto text = ::testing::Message()
                    << s.m << "x" << s.n << "x" << s.k << ", rows of a " << a_has_rows << ", of b "
                    << b_has_rows << ", pitch " << pitch;
  for (const std::int64_t i : some_of(s.m))
    for (const std::int64_t j : some_of(s.n)) {
      double sum = has_bias ? bias.at(j, 0) : 0;
      for (std::int64_t k = 0; k < s.k; ++k) sum += a.at(i, k) * b.at(j, k);
      if (relu) sum = std::max(0.0, sum);
      ASSERT_NEAR(c[static_cast<std::size_t>(i * s.n + j)], sum,
                  1e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6)
          << text << ", at " << i << ", " << j;
    }
  ASSERT_EQ(c, again) << text << ", run twice";
  for (std::size_t i = 0; i < guard; ++i) {
    ASSERT_EQ(c[c.size() - 1 - i], untouched) << text;
    ASSERT_EQ(workspace[workspace.size() - 1 - i], untouched) << text;
  }
}

TEST(Products, EqualSumsAtTheEdgesOfBlocks) {
  const int threads = omp_get_max_threads();
  for (const int some : {1, 2, 3, 6}) {
    omp_set_num_threads(some);
    for (const ProductShape& shape : {ProductShape{15, 65, 400},  // more than one block of depth
                                      {29, 257, 33},              // of columns
                                      {510, 33, 20},              // of rows
                                      {509, 300, 401},            // of all
                                      {30, 256, 1024},            // rows of a a page apart
                                      {270, 800, 17},
                                      {12, 1100, 1000},  // by its transpose
                                      {8200, 20, 40},    // several tasks of rows for each thread
                                      {20, 6400, 60},    // of columns
                                      {12, 12400, 100},
                                      {33, 47, 8200},    // of the depth
                                      {2100, 130, 300},  // threads pack b together
                                      {1200, 290, 400},  // all of its blocks
                                      {64, 5300, 208}})  // by its transpose
      for (const bool a_has_rows : {false, true})
        for (const bool b_has_rows : {false, true})
          for (const std::int64_t pitch : {0, 3})
            expect_product(shape, a_has_rows, b_has_rows, pitch);
  }
  omp_set_num_threads(threads);
}

// Each of several threads has more than one task, which others may take from it.
TEST(Products, AreDividedIntoTasks) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(2);
  const auto tasks = [](ProductShape s) {
    return Product(s, Strides{1, s.m}, Strides{1, s.n}, PixelGrid::matrix(s.n)).tasks();
  };
  EXPECT_GT(tasks({8200, 20, 40}).m, 2);
  EXPECT_GT(tasks({20, 6400, 60}).n, 2);
  EXPECT_GT(tasks({33, 47, 8200}).k, 2);
  EXPECT_GT(tasks({2100, 130, 300}).m, 2) << "fewer than 1,008 rows each";
  EXPECT_LE(tasks({64, 256, 1 << 20}).k, 8) << "each has sums of its own";
  EXPECT_EQ(tasks({33, 47, 60}).count(), 1) << "little work";
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace warpstep::cpu

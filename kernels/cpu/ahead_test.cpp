// Which lines of memory products ask for ahead of time: no result depends on them.
#include "kernels/cpu/ahead.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/core/bf16.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t line_bytes = 64;

// As tiles ask, from `begin` on.
void take(LinesAhead ahead, const char* begin, std::vector<std::int64_t>& asked) {
  for (; ahead.count > 0; --ahead.count) {
    asked.push_back(ahead.at - begin);
    ahead.at += ahead.stride;
    if (--ahead.left > 0) continue;
    ahead.left = ahead.run;
    ahead.at += ahead.jump;
  }
}

struct Matrix {
  std::int64_t rows, row, stride;  // in elements
};

template <class T>
std::vector<std::int64_t> lines_of(const Matrix& m, bool in_rows, std::int64_t steps) {
  constexpr std::int64_t first_row = 3, first = 5;
  const std::vector<T> data(static_cast<std::size_t>((first_row + m.rows) * m.stride + first));
  const Range rows{first_row, first_row + m.rows}, row{first, first + m.row};
  const Strides strides = in_rows ? Strides{m.stride, 1} : Strides{1, m.stride};
  Ahead ahead;
  ahead.add(&strides, data.data(), in_rows ? rows : row, in_rows ? row : rows);
  const auto* begin = reinterpret_cast<const char*>(data.data() + first_row * m.stride + first);
  std::vector<std::int64_t> asked;
  for (LinesAhead next = ahead.next(steps); next.count > 0; next = ahead.next(steps)) {
    EXPECT_LE(next.count, steps);
    take(next, begin, asked);
  }
  std::ranges::sort(asked);
  return asked;
}

std::vector<std::int64_t> all_lines(const Matrix& m, std::int64_t element_bytes) {
  std::vector<std::int64_t> lines;
  const bool is_one = m.stride == m.row;  // row after row
  const std::int64_t rows = is_one ? 1 : m.rows, row = is_one ? m.rows * m.row : m.row;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t at = 0; at < row * element_bytes; at += line_bytes)
      lines.push_back(r * m.stride * element_bytes + at);
  std::ranges::sort(lines);
  return lines;
}

template <class T>
void expect_lines(const Matrix& m) {
  const std::vector<std::int64_t> all = all_lines(m, sizeof(T));
  for (const bool in_rows : {false, true})
    for (const std::int64_t steps : {1, 2, 5, 24, 30, 64, 1000}) {
      const auto asked = lines_of<T>(m, in_rows, steps);
      const auto text = ::testing::Message() << m.rows << "x" << m.row << " of " << m.stride << ", "
                                             << in_rows << ", " << steps << " steps";
      // Of fewer rows than steps some lines have no step.
      if (m.rows >= steps || steps % m.rows == 0 || m.stride == m.row) {
        EXPECT_EQ(asked, all) << text;
      }
      EXPECT_TRUE(std::ranges::includes(all, asked)) << text;
      EXPECT_GE(2 * asked.size(), all.size()) << text;
    }
}

TEST(Ahead, AsksForEachLineOfABlockOnce) {
  for (const Matrix& m : {Matrix{1, 1, 1},
                          {1, 40, 100},
                          {6, 17, 17},
                          {6, 17, 1000},
                          {32, 70, 129},
                          {100, 31, 64},
                          {5, 200, 201}}) {
    expect_lines<float>(m);
    expect_lines<Bf16>(m);
  }
}

TEST(Ahead, AsksForNothingOfAnEmptyBlock) {
  const Strides strides{8, 1};
  const std::vector<float> data(64);
  Ahead ahead;
  ahead.add(&strides, data.data(), {4, 4}, {0, 8});
  ahead.add(&strides, data.data(), {0, 4}, {8, 8});
  ahead.add<float>(nullptr, data.data(), {0, 4}, {0, 8});
  EXPECT_EQ(ahead.next(8).count, 0);
  ahead.add(&strides, data.data(), {0, 2}, {0, 4});
  EXPECT_EQ(ahead.next(0).count, 0);
  EXPECT_EQ(ahead.next(8).count, 2);
  EXPECT_EQ(ahead.next(8).count, 0);
}

}  // namespace
}  // namespace warpstep::cpu

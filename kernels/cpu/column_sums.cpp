#include "kernels/cpu/column_sums.h"

#include <algorithm>

#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// Chunks of rows are summed apart. A few narrow rows count as one wide row, to fill the vectors.
struct ColumnChunks {
  std::int64_t rows, columns, count, together;

  ColumnChunks(std::int64_t total_rows, std::int64_t total_columns)
      : rows(total_rows),
        columns(total_columns),
        count(std::clamp<std::int64_t>(rows * columns / chunk_elements, 1, 64)),
        together(std::max<std::int64_t>(1, 64 / columns)) {}
  std::int64_t width() const { return together * columns; }
};

template <class T>
WARPSTEP_LOOP void add_rows_loop(const T* x, std::int64_t rows, std::int64_t columns,
                                 std::int64_t together, float* __restrict sums) {
  const std::int64_t width = together * columns;
  for (std::int64_t c = 0; c < width; ++c) sums[c] = 0;
  std::int64_t r = 0;
  for (; r + together <= rows; r += together)
    for (std::int64_t c = 0; c < width; ++c) sums[c] += as_float(x[r * columns + c]);
  for (std::int64_t t = 1; t < together; ++t)
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += sums[t * columns + c];
  for (; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += as_float(x[r * columns + c]);
}
template <class T>
const auto add_rows = vectorized<add_rows_loop<T>>();

}  // namespace

std::size_t column_sums_workspace(std::int64_t rows, std::int64_t columns) {
  const ColumnChunks chunks(rows, columns);
  return static_cast<std::size_t>(chunks.count * chunks.width()) * sizeof(float);
}

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t columns, T* sums, void* workspace) {
  const ColumnChunks chunks(rows, columns);
  auto* parts = static_cast<float*>(workspace);
#pragma omp parallel for schedule(static) if (chunks.count > 4)
  for (std::int64_t i = 0; i < chunks.count; ++i) {
    const std::int64_t begin = rows * i / chunks.count, end = rows * (i + 1) / chunks.count;
    add_rows<T>(x + begin * columns, end - begin, columns, chunks.together,
                parts + i * chunks.width());
  }
  for (std::int64_t i = 1; i < chunks.count; ++i)
    for (std::int64_t c = 0; c < columns; ++c) parts[c] += parts[i * chunks.width() + c];
  for (std::int64_t c = 0; c < columns; ++c) sums[c] = rounded_to<T>(parts[c]);
}
template void column_sums(const float*, std::int64_t, std::int64_t, float*, void*);
template void column_sums(const Bf16*, std::int64_t, std::int64_t, Bf16*, void*);

}  // namespace warpstep::cpu

// Embeddings on the CPU. Bound by memory: forward reads the tokens' rows of the table and writes x;
// the adjoint reads d_x twice, once by token and once by position, and of a gradient that it adds
// to only the tokens' rows.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/floats.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t large_embed = 16384;  // elements; from here on a team is faster

// Which rows a sum takes, in order.
struct EveryNth {
  std::int64_t first, step;
  WARPSTEP_LOOP std::int64_t operator()(std::int64_t i) const { return first + i * step; }
};
struct Listed {
  const std::int32_t* rows;
  WARPSTEP_LOOP std::int64_t operator()(std::int64_t i) const { return rows[i]; }
};

// sum [width] = row(0) + row(1) + ... of x, `count` rows of `pitch` elements; four at a time, as
// the sum is loaded and stored for each of them otherwise.
template <class T, class Rows>
WARPSTEP_LOOP void sum_rows_loop(const T* x, std::int64_t pitch, Rows row, std::int64_t count,
                                 float* sum, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) sum[c] = 0;
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const T *a = x + row(i) * pitch, *b = x + row(i + 1) * pitch, *d = x + row(i + 2) * pitch,
            *e = x + row(i + 3) * pitch;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c)
      sum[c] = (((sum[c] + as_float(a[c])) + as_float(b[c])) + as_float(d[c])) + as_float(e[c]);
  }
  for (; i < count; ++i) {
    const T* a = x + row(i) * pitch;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) sum[c] += as_float(a[c]);
  }
}
template <class T>
const auto sum_every_nth = vectorized<sum_rows_loop<T, EveryNth>>();
template <class T>
const auto sum_listed = vectorized<sum_rows_loop<T, Listed>>();

}  // namespace

std::unique_ptr<Kernel> bind(const Embed& op, const Operands& operands) {
  const std::int64_t tokens = operands.out_shape()[0], width = operands.out_shape()[1],
                     sequence = op.sequence;
  return with_stored(operands.out().type.dtype, [&]<class T>() {
    return host_kernel("vector loops", [tokens, width, sequence](const Buffers& b) {
      const auto* token = as<std::int32_t>(b.in[0]);
#pragma omp parallel for schedule(static) if (tokens * width > large_embed)
      for (std::int64_t n = 0; n < tokens; ++n)
        add_row(as<T>(b.in[2]) + token[n] * width, as<T>(b.in[3]) + n % sequence * width, width,
                as<T>(b.out[0]) + n * width);
    });
  });
}

// The adjoint.

namespace {

// The list of numbers sorted by token, in chunks that depend on its length alone. A run, the
// numbers of one token, may continue in the chunks after its first one. Each chunk has two rows of
// memory: `head`, the sum of a run that began before it, and `tail`, that of a run that begins in
// it and continues.
struct TokenRuns {
  std::int64_t tokens, width;
  std::int64_t chunk = std::max<std::int64_t>(64, (tokens + 255) / 256);
  std::int64_t count = (tokens + chunk - 1) / chunk;

  std::size_t bytes() const { return idx(2 * count * width) * sizeof(float); }
  float* head(void* workspace, std::int64_t k) const {
    return as<float>(workspace) + 2 * k * width;
  }
  float* tail(void* workspace, std::int64_t k) const { return head(workspace, k) + width; }
  std::int64_t begin(std::int64_t k) const { return k * chunk; }
  std::int64_t end(std::int64_t k) const { return std::min(tokens, (k + 1) * chunk); }
};

template <class T>  // of d_x and the table; sums are floats
struct TableGradient {
  TokenRuns runs;
  bool sum;
  const T* d_x;
  const std::int32_t *token, *order;
  T* d_table;
  void* workspace;

  std::int32_t token_at(std::int64_t i) const { return token[order[i]]; }
  // Whether numbers i - 1 and i of the list are of one run.
  bool joined(std::int64_t i) const {
    return i > 0 && i < runs.tokens && token_at(i - 1) == token_at(i);
  }
  void sum_chunk(std::int64_t k) const;
  void join_tail(std::int64_t k) const;
  // Gives the table the whole sum of a run.
  void give(std::int64_t row, const float* total) const;
};

template <class T>
void TableGradient<T>::give(std::int64_t row, const float* total) const {
  T* to = d_table + row * runs.width;
  if (sum)
    add_row(total, to, runs.width, to);
  else
    convert_row(total, runs.width, to);
}

// Runs that lie in chunk k go to the table, parts of others to the workspace.
template <class T>
void TableGradient<T>::sum_chunk(std::int64_t k) const {
  const std::int64_t end = runs.end(k);
  for (std::int64_t i = runs.begin(k), next = i; i < end; i = next) {
    for (next = i + 1; next < end && joined(next);) ++next;
    const bool before = joined(i), after = joined(next);
    // Runs inside of the chunk are summed in the row of the tail, which is its last run.
    float* total = before ? runs.head(workspace, k) : runs.tail(workspace, k);
    sum_listed<T>(d_x, runs.width, {order + i}, next - i, total, runs.width);
    if (!before && !after) give(token_at(i), total);
  }
}

// The run that begins in chunk k and continues, if there is one: its tail and the heads after it.
template <class T>
void TableGradient<T>::join_tail(std::int64_t k) const {
  const std::int64_t last = runs.end(k) - 1;
  if (!joined(last + 1)) return;
  if (joined(runs.begin(k)) && token_at(runs.begin(k)) == token_at(last)) return;  // began before
  float* total = runs.tail(workspace, k);
  for (std::int64_t m = k + 1; m < runs.count; ++m) {
    add_row(total, runs.head(workspace, m), runs.width, total);
    const std::int64_t after = runs.end(m);
    if (after == runs.tokens || token_at(after) != token_at(last)) break;
  }
  give(token_at(last), total);
}

// Without a gradient so far, rows without a token are 0; with one it is already in its place,
// unless somebody else reads it, too.
template <class T>
void begin_table(const EmbedGrad& op, std::int64_t count, const Buffers& b) {
  auto* d_table = as<T>(b.out[0]);
  if (op.sum && b.in[3] == b.out[0]) return;
  for_chunks(count, [&](std::int64_t begin, std::int64_t end) {
    if (op.sum)
      std::copy(as<T>(b.in[3]) + begin, as<T>(b.in[3]) + end, d_table + begin);
    else
      std::fill(d_table + begin, d_table + end, T{});
  });
}

// Sums every `sequence`-th row of d_x. A few positions do not feed a team, so their rows are
// divided, too.
template <class T>
void sum_positions(const T* d_x, std::int64_t tokens, std::int64_t sequence, std::int64_t width,
                   T* d_positions) {
  constexpr std::int64_t most_panel = 512;
  const std::int64_t panel = sequence >= 64 ? std::min(width, most_panel) : 64,
                     panels = (width + panel - 1) / panel;
#pragma omp parallel for schedule(static) if (tokens * width > large_embed)
  for (std::int64_t task = 0; task < sequence * panels; ++task) {
    const std::int64_t t = task / panels, first = task % panels * panel,
                       count = std::min(panel, width - first);
    T* to = d_positions + t * width + first;
    if constexpr (std::is_same_v<T, float>) {
      sum_every_nth<T>(d_x + first, width, {t, sequence}, tokens / sequence, to, count);
    } else {
      float sums[most_panel];
      sum_every_nth<T>(d_x + first, width, {t, sequence}, tokens / sequence, sums, count);
      convert_row(sums, count, to);
    }
  }
}

template <class T>
std::unique_ptr<Kernel> embed_grad_kernel(const EmbedGrad& op, const TokenRuns& runs) {
  return host_kernel(
      "vector loops",
      [op, runs](const Buffers& b) {
        const TableGradient<T> table{runs,
                                     op.sum,
                                     as<T>(b.in[0]),
                                     as<std::int32_t>(b.in[1]),
                                     as<std::int32_t>(b.in[2]),
                                     as<T>(b.out[0]),
                                     b.workspace};
        begin_table<T>(op, op.vocabulary * runs.width, b);
        const bool large = runs.tokens * runs.width > large_embed;
#pragma omp parallel for schedule(static) if (large)
        for (std::int64_t k = 0; k < runs.count; ++k) table.sum_chunk(k);
#pragma omp parallel for schedule(static) if (large)
        for (std::int64_t k = 0; k < runs.count; ++k) table.join_tail(k);
        auto* d_positions = as<T>(b.out[1]);
        sum_positions(table.d_x, runs.tokens, op.sequence, runs.width, d_positions);
        std::fill(d_positions + op.sequence * runs.width, d_positions + op.positions * runs.width,
                  T{});
      },
      runs.bytes());
}

}  // namespace

std::unique_ptr<Kernel> bind(const EmbedGrad& op, const Operands& operands) {
  const TokenRuns runs{operands.in_shape(0)[0], operands.in_shape(0)[1]};
  return with_stored(operands.in(0).type.dtype,
                     [&]<class T>() { return embed_grad_kernel<T>(op, runs); });
}

}  // namespace warpstep::cpu

// Blocking: a strip of a (tile_rows of it) and panels of b (tile_columns wide) are packed for at
// most block_depth; a strip stays in the first-level cache and meets every panel, which stay in the
// second-level cache. What is packed next is asked for while the tiles compute, as products of cold
// operands would otherwise wait for memory and compute in turns. Bound by arithmetic where each
// packed element is used often enough; few rows of a do not pay for packing b, and read it as it
// lies in memory: is_dots(), swaps(). Figures: bench/RECORDS.md.
#include "kernels/cpu/gemm.h"

#include <omp.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "kernels/cpu/gemm_loops.h"
#include "kernels/cpu/strided_tile.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// A block of a is packed once for all of b, unless few columns make that dearer than reading it
// where it is; a block of b again for each block of a, unless b has only one, of most_columns, or
// is so small that the threads pack it once and share it. Of more columns so few are packed at a
// time that the second-level cache also holds the block of a and what is asked for.
constexpr std::int64_t most_columns = 256, block_columns = 64, block_rows = 504;
constexpr std::int64_t most_dot_rows = 8, least_dot_depth = 32;
constexpr std::int64_t depth_unit = 16;  // of blocks: rows are transposed in squares of vectors
constexpr std::int64_t few_rows = 128;   // of a product that computes its transpose

namespace gemm {
#define WARPSTEP_SOURCE "kernels/cpu/gemm.inc"
#include "engine/core/each_set.inc"
}  // namespace gemm

// The next piece of `whole` after `piece`, about as large; empty after the last one.
Range after(Range piece, Range whole) {
  return {piece.end, std::min(whole.end, piece.end + piece.size())};
}

std::int64_t rounded(std::int64_t floats) {
  return (floats + 15) / 16 * 16;
}

// From one packed strip to the next, in floats: an odd number of lines of a cache, so that the
// strips that pack_lines() writes at the same time are in different sets.
std::int64_t apart(std::int64_t width, std::int64_t depth) {
  constexpr std::int64_t line = 16;
  return ((width * depth + line - 1) / line | 1) * line;
}

// Calls run(block, index) for equal blocks of a range, of at most `most`, with bounds at multiples
// of `unit` from its beginning.
template <class Run>
void for_blocks(Range range, std::int64_t unit, std::int64_t most, Run run) {
  const std::int64_t count = (range.size() + most - 1) / most;
  for (std::int64_t i = 0; i < count; ++i) {
    const Range block = part_of(range.size(), unit, count, i);
    run(Range{range.begin + block.begin, range.begin + block.end}, i);
  }
}

void add_row(const float* from, std::int64_t count, float* to) {
  for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
}

}  // namespace

const GemmLoops& gemm_loops() {
  static const GemmLoops best = of_isa(gemm::avx512::loops, gemm::avx2::loops, gemm::plain::loops);
  return best;
}

Product::Product(Shape shape, Source a, Source b, PixelGrid c, bool relu)
    : shape_(shape),
      a_(operand_of(std::move(a))),
      b_(operand_of(std::move(b))),
      grid_(c),
      relu_(relu),
      reads_a_(choose_reads_a()),
      by_dots_(is_dots()) {
  divide(true);
  if (by_dots_ || !swaps()) return;
  auto swapped = std::make_unique<Product>(Shape{shape.n, shape.m, shape.k}, *b_->strides(),
                                           *a_->strides(), PixelGrid::matrix(shape.m));
  swapped->divide(false);
  swapped_ = std::move(swapped);
}

void Product::divide(bool splits_depth) {
  const int threads = omp_get_max_threads();
  parts_ = choose_parts(threads, splits_depth);
  shares_b_ = parts_.m > 1 && parts_.k == 1 && parts_.count() == threads && may_share_b(threads);
  tasks_ = choose_tasks();
}

std::string Product::implementation() {
  return fmt::format("gemm, {}", name(cpu_isa()));
}

Product::ReadsA Product::choose_reads_a() const {
  constexpr std::int64_t few_columns = 768, copied_columns = 256;
  constexpr std::int64_t page = 1024;  // rows that are multiples of it apart share lines of a cache
  const Strides* s = a_->strides();
  if (!s || s->depth != 1 || shape_.n > few_columns) return ReadsA::packed;
  if (s->outer % page != 0) return ReadsA::in_place;
  return shape_.n <= copied_columns ? ReadsA::copied : ReadsA::packed;
}

// Where few rows of a meet many rows in memory of b, which the product would have to transpose
// while it packs them, it computes the transpose of c: the rows of b are then read as they are.
// That saves time only where b is too large to stay in a cache, and where the rows of a fill
// vectors, or are so few that packing b for them takes longer than computing what fills up the last
// vector.
bool Product::swaps() const {
  constexpr std::int64_t least_elements = 1 << 20, least_depth = 64, least_ratio = 4,
                         part_filled = 32;
  const std::int64_t lanes = gemm_loops().tile_columns / 2;
  const auto has_rows = [](const Operand& operand) {
    const Strides* s = operand.strides();
    return s && s->depth == 1;
  };
  return has_rows(*a_) && has_rows(*b_) && shape_.n * shape_.k >= least_elements &&
         shape_.k >= least_depth && shape_.m <= few_rows &&
         (shape_.m % lanes == 0 || shape_.m <= part_filled) && shape_.n >= least_ratio * shape_.m;
}

// The cost of a part: its tiles' time, and the time to pack its operands, to add its result and to
// share the rows of c with other threads, in multiply-adds. A product that one thread computes and
// writes in less than a team takes to start stays with it.
ProductParts Product::choose_parts(int threads, bool splits_depth) const {
  constexpr double least_cost = 1 << 20, pack_cost = 16, read_cost = 2, add_cost = 32,
                   write_cost = 16, share_cost = 64;
  const auto divided = [](std::int64_t total, std::int64_t unit, std::int64_t parts) {
    const std::int64_t units = (total + unit - 1) / unit;
    return static_cast<double>((units + parts - 1) / parts * unit);
  };
  splits_depth = splits_depth && grid_.row == 0 && grid_.pixel == shape_.n;
  const double row_cost = reads_a_ == ReadsA::packed ? pack_cost : read_cost;
  const auto cost = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const double rows = divided(shape_.m, gemm_loops().tile_rows, m);
    const double columns = divided(shape_.n, gemm_loops().tile_columns, n);
    const double depth = divided(shape_.k, 8, k);
    const bool shares = may_share_b(threads) && m > 1 && k == 1 && m * n == threads;
    const double packed =
        shares ? static_cast<double>(shape_.n) /
                     static_cast<double>(std::min<std::int64_t>(threads, pack_tasks().count()))
               : columns;
    return rows * columns * depth + depth * (row_cost * rows + pack_cost * packed) +
           (n > 1 ? share_cost * rows * columns : 0) +
           (k > 1 ? add_cost * static_cast<double>(shape_.m * shape_.n * (k + 1) / threads) : 0);
  };
  if (cost(1, 1, 1) + write_cost * static_cast<double>(shape_.m * shape_.n) < least_cost)
    return {1, 1, 1};
  return cheapest_parts(threads, splits_depth, cost);
}

// A small b stays near every core after one of them has packed it: of more, the other cores wait
// for it longer than they would pack. Little work ends before it pays to start the threads twice.
bool Product::may_share_b(int threads) const {
  constexpr std::int64_t most_elements = 1 << 17, least_work = 1 << 25;  // of a thread
  return shape_.n * shape_.k <= most_elements &&
         shape_.m * shape_.n * shape_.k >= least_work * threads;
}

// Of b that threads pack together.
ProductParts Product::pack_tasks() const {
  return {1, (shape_.n + block_columns - 1) / block_columns,
          (shape_.k + block_depth - 1) / block_depth};
}

std::int64_t Product::block_floats() const {
  const std::int64_t width = gemm_loops().tile_columns;
  return (shape_.n + width - 1) / width * apart(width, std::min(block_depth, shape_.k));
}

std::int64_t Product::shared_floats() const {
  if (!shares_b_) return 0;
  return pack_tasks().k * block_floats() + pack_slack;
}

Product::Scratch Product::scratch() const {
  const GemmLoops& l = gemm_loops();
  const std::int64_t depth = std::min(block_depth, shape_.k);
  const auto floats = [&](std::int64_t total, std::int64_t width) {
    return (total + width - 1) / width * apart(width, depth) + pack_slack;
  };
  Scratch s;
  s.panels = floats(std::min(block_rows, shape_.m), l.tile_rows);
  s.rest = s.panels + (shares_b_ ? 0 : floats(std::min(most_columns, shape_.n), l.tile_columns));
  s.floats = s.rest +
             rounded(std::max(a_->scratch(l.tile_rows, depth), b_->scratch(l.tile_columns, depth)));
  return s;
}

// Few rows of a, and rows in memory of b: each element of b is used a few times only, and packing
// it takes longer than that, unless the rows are so short that adding up a vector's lanes does.
bool Product::is_dots() const {
  const Strides *a = a_->strides(), *b = b_->strides();
  return a && b && a->depth == 1 && b->depth == 1 && shape_.m <= most_dot_rows &&
         shape_.k >= least_dot_depth * shape_.m;
}

std::size_t Product::workspace_bytes() const {
  if (by_dots_) return 0;
  if (swapped_)
    return static_cast<std::size_t>(rounded(shape_.m * shape_.n)) * sizeof(float) +
           swapped_->workspace_bytes();
  const std::int64_t sums = (tasks_.k - 1) * rounded(shape_.m * shape_.n);
  return static_cast<std::size_t>(shared_floats() + parts_.count() * scratch().floats + sums) *
         sizeof(float);
}

void Product::run(const float* a, const float* b, const float* bias, float* c,
                  void* workspace) const {
  if (shape_.k == 0) {
    for (std::int64_t i = 0; i < shape_.m; ++i)
      for (std::int64_t j = 0; j < shape_.n; ++j) {
        const float value = bias ? bias[j] : 0;
        c[grid_.offset(i) + j] = relu_ ? rectified(value) : value;
      }
    return;
  }
  if (by_dots_) {
    run_dots(a, b, bias, c);
    return;
  }
  auto* scratch = static_cast<float*>(workspace);
  if (swapped_) {
    run_swapped(a, b, bias, c, scratch);
    return;
  }
  run_parts(a, b, bias, c, scratch, [](Range, Range) {});
  if (tasks_.k == 1) return;
  const std::int64_t size = shape_.m * shape_.n;
  const float* sums = scratch + shared_floats() + parts_.count() * this->scratch().floats;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < shape_.m; ++i) {
    float* row = c + i * shape_.n;
    for (std::int64_t of_k = 1; of_k < tasks_.k; ++of_k)
      add_row(sums + (of_k - 1) * rounded(size) + i * shape_.n, shape_.n, row);
    if (bias) add_row(bias, shape_.n, row);
    if (relu_)
      for (std::int64_t j = 0; j < shape_.n; ++j) row[j] = rectified(row[j]);
  }
}

template <class Done>
void Product::run_parts(const float* a, const float* b, const float* bias, float* c,
                        float* workspace, Done done) const {
  const std::int64_t each = this->scratch().floats;
  float *shared = workspace, *scratch = workspace + shared_floats(),
        *sums = scratch + parts_.count() * each;
  if (shares_b_) pack_shared(b, scratch, shared);
  const bool whole = tasks_.k == 1;  // a task gives its final result
  const auto run = [&](std::int64_t task, float* scratch_of_task) {
    const std::int64_t of_k = task % tasks_.k;
    const Range rows =
        part_of(shape_.m, gemm_loops().tile_rows, tasks_.m, task / tasks_.k / tasks_.n);
    const Range columns =
        part_of(shape_.n, gemm_loops().tile_columns, tasks_.n, task / tasks_.k % tasks_.n);
    run_part(rows, columns, part_of(shape_.k, 8, tasks_.k, of_k), a, b, shared,
             whole ? bias : nullptr, of_k == 0 ? grid_ : PixelGrid::matrix(shape_.n),
             of_k == 0 ? c : sums + (of_k - 1) * rounded(shape_.m * shape_.n), scratch_of_task);
    done(rows, columns);
  };
  if (tasks_.count() > parts_.count()) {
    for_tasks(
        tasks_.count(), true,
        [&](std::int64_t task) { run(task, scratch + omp_get_thread_num() * each); },
        SharedTasks::Order::forwards, static_cast<int>(parts_.count()));
    return;
  }
  // Each part is one task.
#pragma omp parallel for schedule(static, 1) if (parts_.count() > 1)
  for (std::int64_t part = 0; part < parts_.count(); ++part) run(part, scratch + part * each);
}

void Product::pack_shared(const float* b, float* scratch, float* shared) const {
  const int width = gemm_loops().tile_columns;
  const Scratch places = this->scratch();
  const ProductParts tasks = pack_tasks();
  for_tasks(
      tasks.count(), true,
      [&](std::int64_t task) {
        const std::int64_t of_k = task / tasks.n;
        const Range columns = part_of(shape_.n, width, tasks.n, task % tasks.n),
                    depth = part_of(shape_.k, depth_unit, tasks.k, of_k);
        const std::int64_t panel = apart(width, depth.size());
        b_->pack(b, columns, {width, true, panel}, depth,
                 scratch + omp_get_thread_num() * places.floats + places.rest,
                 shared + of_k * block_floats() + columns.begin / width * panel);
      },
      SharedTasks::Order::forwards, static_cast<int>(parts_.count()));
}

// The parts, each divided into tasks that threads share if each has a part, and so scratch of its
// own. A task has so much of an axis that it takes little time to pack the other operand for it or
// to add its sums, which stay in a cache. Where the threads pack b together a few rows are enough.
ProductParts Product::choose_tasks() const {
  constexpr std::int64_t rows = 2 * block_rows, columns = 768, depth = 1024, shared_rows = 96,
                         least_work = 1 << 21, most_depths = 4, most_sums = 1 << 20;
  ProductParts tasks = parts_;
  if (parts_.count() == 1 || parts_.count() != omp_get_max_threads()) return tasks;
  const std::int64_t work = shape_.m * shape_.n * shape_.k / parts_.count();
  const std::int64_t of_rows = shape_.m / parts_.m / rows;
  const auto more = [](std::int64_t parts, std::int64_t tasks_of_part) {
    return parts * std::max<std::int64_t>(1, tasks_of_part);
  };
  if (shares_b_)
    tasks.m = more(parts_.m, std::min(work / least_work, shape_.m / parts_.m / shared_rows));
  else if (parts_.k > 1)
    tasks.k = more(parts_.k, std::min({shape_.k / parts_.k / depth, most_depths,
                                       most_sums / (parts_.k * shape_.m * shape_.n)}));
  else if (of_rows > 1)
    tasks.m = more(parts_.m, of_rows);
  else
    tasks.n = more(parts_.n, shape_.n / parts_.n / columns);
  return tasks;
}

void Product::run_dots(const float* a, const float* b, const float* bias, float* c) const {
  constexpr std::int64_t least_work = 1 << 16, unit = 16;  // columns of a cache line
  const std::int64_t parts = shape_.n * shape_.k >= least_work ? omp_get_max_threads() : 1,
                     a_row = a_->strides()->outer, b_row = b_->strides()->outer;
#pragma omp parallel for schedule(static, 1) if (parts > 1)
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range columns = part_of(shape_.n, unit, parts, part);
    // A few columns meet all rows while they are in a cache.
    for (std::int64_t j = columns.begin; j < columns.end; j += unit) {
      std::array<float*, most_dot_rows> rows;
      for (std::int64_t i = 0; i < shape_.m; ++i)
        rows[static_cast<std::size_t>(i)] = c + grid_.offset(i) + j;
      gemm_loops().dot_rows({.a = a,
                             .b = b + j * b_row,
                             .a_row = a_row,
                             .b_row = b_row,
                             .bias = bias ? bias + j : nullptr,
                             .c = rows.data(),
                             .rows = shape_.m,
                             .columns = std::min(unit, columns.end - j),
                             .depth = shape_.k,
                             .relu = relu_});
    }
  }
}

void Product::run_swapped(const float* a, const float* b, const float* bias, float* c,
                          float* workspace) const {
  const std::int64_t m = shape_.m;
  float* transposed = workspace;  // [n, m]
  const auto transpose = [&](Range js, Range is) {
    for (std::int64_t j0 = js.begin; j0 < js.end; j0 += most_width) {
      const int width = static_cast<int>(std::min(most_width, js.end - j0));
      std::array<const float*, most_width> rows;
      for (int j = 0; j < width; ++j)
        rows[static_cast<std::size_t>(j)] = transposed + (j0 + j) * m + is.begin;
      alignas(64) std::array<float, few_rows * most_width + pack_slack> strip;
      gemm_loops().pack_rows(rows.data(), width, width, is.size(), strip.data());
      for (std::int64_t i = 0; i < is.size(); ++i) {
        const float* from = strip.data() + i * width;
        float* to = c + grid_.offset(is.begin + i) + j0;
        for (int j = 0; j < width; ++j) to[j] = from[j] + (bias ? bias[j0 + j] : 0);
        if (relu_)
          for (int j = 0; j < width; ++j) to[j] = rectified(to[j]);
      }
    }
  };
  swapped_->run_parts(b, a, nullptr, transposed, workspace + rounded(m * shape_.n), transpose);
}

void Product::run_part(Range rows, Range columns, Range depth, const float* a, const float* b,
                       const float* shared, const float* bias, const PixelGrid& grid, float* c,
                       float* scratch) const {
  const GemmLoops& l = gemm_loops();
  const Scratch places = this->scratch();
  float *block = scratch, *packed = scratch + places.panels, *rest = scratch + places.rest;
  std::array<float*, most_width> pointers;
  // Where a strip of a meets all of b at once, it is packed just before that, into the first-level
  // cache; then the strip after it is what the tiles ask for ahead of time, and otherwise the
  // blocks that are packed next.
  const bool once = columns.size() <= most_columns;
  const std::int64_t width = once ? columns.size() : block_columns;
  const bool in_place = reads_a_ == ReadsA::in_place, copied = reads_a_ == ReadsA::copied;
  const bool by_strips = copied || (once && !in_place && a_->packs_by_strips());
  const Strides* const strides_of_b =
      shares_b_ ? nullptr : b_->strides();  // null: is not asked for
  for_blocks(depth, depth_unit, block_depth, [&](Range ks, std::int64_t of_k) {
    const std::int64_t panel = apart(l.tile_columns, ks.size());
    const bool first = ks.begin == depth.begin, last = ks.end == depth.end;
    const StripLayout strips_of_a{l.tile_rows, false, apart(l.tile_rows, ks.size())};
    for_blocks(rows, l.tile_rows, block_rows, [&](Range is, std::int64_t) {
      if (!in_place && !by_strips) a_->pack(a, is, strips_of_a, ks, rest, block);
      for (std::int64_t j0 = columns.begin; j0 < columns.end; j0 += width) {
        const Range js{j0, std::min(columns.end, j0 + width)};
        const float* panels = packed;
        if (shares_b_)
          panels = shared + of_k * block_floats() + j0 / l.tile_columns * panel;
        else if (is.begin == rows.begin || !once)
          b_->pack(b, js, {l.tile_columns, true, panel}, ks, rest, packed);
        Ahead blocks;
        const Range next_ks = after(ks, depth);
        const bool last_rows = is.end == rows.end;
        if (js.end < columns.end)
          blocks.add(strides_of_b, b, after(js, columns), ks);
        else if (last_rows)
          blocks.add(strides_of_b, b, {columns.begin, columns.begin + js.size()}, next_ks);
        if (!by_strips && !in_place && js.end == columns.end)
          blocks.add(a_->strides(), a,
                     last_rows ? Range{rows.begin, rows.begin + is.size()} : after(is, rows),
                     last_rows ? next_ks : ks);
        const std::int64_t strips = (is.size() + l.tile_rows - 1) / l.tile_rows;
        const bool even = in_place || by_strips;
        for (std::int64_t strip = 0; strip < strips; ++strip) {
          const std::int64_t i =
              is.begin + (even ? is.size() * strip / strips : strip * l.tile_rows);
          const std::int64_t end = even ? is.begin + is.size() * (strip + 1) / strips
                                        : std::min(is.end, i + l.tile_rows);
          if (copied)
            for (std::int64_t r = i; r < end; ++r)
              std::copy_n(a + r * a_->strides()->outer + ks.begin, ks.size(),
                          block + (r - i) * ks.size());
          else if (by_strips)
            a_->pack(a, {i, end}, strips_of_a, ks, rest, block);
          Ahead next_strip;
          const bool has_rows = even && once && a_->strides() && a_->strides()->depth == 1;
          if (has_rows) {
            const Range next = after({i, end}, rows);
            if (next.size() > 0)
              next_strip.add(a_->strides(), a, next, ks);
            else
              next_strip.add(a_->strides(), a, {rows.begin, rows.begin + (end - i)}, next_ks);
          }
          Ahead& ahead = has_rows ? next_strip : blocks;
          for (std::int64_t r = i; r < end; ++r)
            pointers[static_cast<std::size_t>(r - i)] = c + grid.offset(r) + j0;
          GemmTile tile{.a = by_strips ? block : block + strip * strips_of_a.apart,
                        .b = panels,
                        .a_row = 0,
                        .bias = nullptr,
                        .c = pointers.data(),
                        .depth = ks.size(),
                        .rows = static_cast<int>(end - i),
                        .columns = 0,
                        .accumulate = !first,
                        .relu = last && relu_ && tasks_.k == 1,
                        .ahead = {}};
          if (copied) tile.a_row = ks.size();
          if (in_place) {
            tile.a_row = a_->strides()->outer;
            tile.a = a + i * tile.a_row + ks.begin;
          }
          for (std::int64_t j = j0; j < js.end; j += l.tile_columns) {
            tile.bias = last && bias ? bias + j : nullptr;
            tile.columns = static_cast<int>(std::min<std::int64_t>(l.tile_columns, js.end - j));
            tile.ahead = ahead.next(std::max<std::int64_t>(0, tile.depth - tile.rows));
            l.multiply(tile);
            tile.b += panel;
            for (int r = 0; r < tile.rows; ++r)
              pointers[static_cast<std::size_t>(r)] += l.tile_columns;
          }
        }
      }
    });
  });
}

}  // namespace warpstep::cpu

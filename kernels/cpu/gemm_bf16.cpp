// Products of bf16. c is computed in squares of 32x32, whose operands are packed: a strip of a as
// rows of its depth, a panel of b as rows of pairs, which is what both instruction sets read. A
// strip stays in the first-level cache and meets every panel of a block of b, which stay in the
// second-level cache. A depth of more than one block is summed in floats in the workspace. AMX
// multiplies 16 times as fast as AVX-512 does in float, so packing and memory bound most products.
// Tiles of AVX512_BF16 ask for what is packed next, as those of gemm.cpp do. Figures:
// bench/RECORDS.md.
#include "kernels/cpu/gemm_bf16.h"

#include <omp.h>

#include <fmt/format.h>
#include <array>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "kernels/cpu/bf16_operand.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t square_floats = square * square;
constexpr std::int64_t block_panels = 24;
constexpr std::int64_t block_squares = 256;  // whose sums are in the workspace: 1 MiB
constexpr std::int64_t tiles_of_square = 3;  // with AVX512_BF16

constexpr std::int64_t padded(std::int64_t extent) {
  return (extent + square - 1) / square * square;
}

// Where the steps of a packed strip begin.
constexpr auto packed_offsets = [] {
  std::array<std::int64_t, bf16_block_depth / square> offsets{};
  for (std::size_t s = 0; s < offsets.size(); ++s)
    offsets[s] = static_cast<std::int64_t>(s) * square;
  return offsets;
}();

// Calls run(block) for equal blocks of at most `most`, multiples of `unit` but for the last.
template <class Run>
void for_blocks(Range range, std::int64_t unit, std::int64_t most, Run run) {
  const std::int64_t count = (range.size() + most - 1) / most;
  for (std::int64_t i = 0; i < count; ++i) {
    const Range part = part_of(range.size(), unit, count, i);
    run(Range{range.begin + part.begin, range.begin + part.end});
  }
}

// The panels of b: the columns of a run each, so that their lines need no copies.
std::vector<Range> panels_of(const Source& b, std::int64_t columns) {
  std::vector<Range> panels;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += square) panels.push_back({begin, std::min(end, begin + square)});
  };
  const auto* matrix = std::get_if<WindowMatrix>(&b);
  if (matrix && matrix->outer == Outer::features)
    for_runs(matrix->windows, {0, columns},
             [&](const FeatureRun& run, std::int64_t first) { add(first, first + run.count); });
  else
    add(0, columns);
  return panels;
}

}  // namespace

// Windows of stride 1 read as they lie in an image with zeros around it: consecutive windows are a
// pixel apart, and so are those at the end of a line, whose results nobody wants. A run of features
// is as many steps, in the last of which b has zeros.
struct Bf16Product::Direct {
  Windows w;
  std::int64_t line = 0, height = 0;  // of the image with its zeros
  std::vector<Range> depth;           // of b, a block each
  std::vector<std::int64_t> offsets;  // of the steps

  // Windows from the first to the last of an image, with those between the lines.
  std::int64_t windows() const { return (w.rows - 1) * line + w.columns; }
  std::int64_t steps() const { return static_cast<std::int64_t>(offsets.size()); }
  std::int64_t image() const { return height * line * w.channels; }
  std::int64_t elements() const {  // with those that the last strip reads beyond it
    return image() + (square + 1) * w.channels + square;
  }
  void copy(const Bf16* from, Bf16* to) const;
};

void Bf16Product::Direct::copy(const Bf16* from, Bf16* to) const {
  const std::int64_t channels = w.channels, left = std::max<std::int64_t>(0, -w.left),
                     right = std::max(left, std::min(line, w.width - w.left));
  for (std::int64_t i = 0; i < height; ++i, to += line * channels) {
    const std::int64_t h = w.top + i;
    const bool inside = h >= 0 && h < w.height;
    const Bf16Piece piece{inside ? from + (h * w.width + w.left + left) * channels : from,
                          inside ? left * channels : 0, inside ? right * channels : 0};
    bf16_loops().copy_pieces(&piece, 1, line * channels, 0, to);
  }
  bf16_loops().clear_columns(1, 0, elements() - image(), 0, to);
}

// Where so many products of zero cost less than copying every window does.
std::shared_ptr<const Bf16Product::Direct> Bf16Product::direct_images(const Source& a,
                                                                      Shape shape) {
  constexpr std::int64_t copy_cost = 48;                      // of a feature, in multiply-adds
  constexpr std::int64_t most_bytes = std::int64_t{5} << 18;  // of all panels
  const auto* matrix = std::get_if<WindowMatrix>(&a);
  if (!matrix || matrix->outer != Outer::windows || shape.k == 0) return nullptr;
  const Windows& w = matrix->windows;
  if (w.stride != 1 || w.step_h != 1 || !has_adjacent_taps(w)) return nullptr;
  auto direct = std::make_shared<Direct>(
      Direct{.w = w, .line = w.columns + w.taps_w - 1, .height = w.rows + w.taps_h - 1});
  for_runs(w, {0, shape.k}, [&](const FeatureRun& run, std::int64_t first) {
    for (std::int64_t f = 0; f < run.count; f += bf16_block_depth)
      direct->depth.push_back({first + f, first + std::min(run.count, f + bf16_block_depth)});
    for (std::int64_t f = 0; f < run.count; f += square)
      direct->offsets.push_back(run.tap_h * direct->line * w.channels + f);
  });
  const std::int64_t depth = direct->steps() * square, half = square / 2;
  if (depth * padded(shape.n) * static_cast<std::int64_t>(sizeof(Bf16)) > most_bytes)
    return nullptr;
  const std::int64_t windows = (direct->windows() + half - 1) / half * half;
  const bool cheaper = windows * depth * padded(shape.n) <
                       w.rows * w.columns * padded(shape.k) * (padded(shape.n) + copy_cost);
  const bool enough = shape.m / (w.rows * w.columns) >= omp_get_max_threads();
  return cheaper && enough ? direct : nullptr;
}

Bf16Product::Bf16Product(Shape shape, Source a, Source b, PixelGrid c, bool relu)
    : shape_(shape),
      panels_(panels_of(b, shape.n)),
      direct_(direct_images(a, shape)),
      a_(bf16_operand(std::move(a))),
      b_(bf16_operand(std::move(b))),
      grid_(c),
      relu_(relu),
      reads_a_(reads_a_directly()),
      parts_(choose_parts(omp_get_max_threads())) {
  if (bf16_isa() == Bf16Isa::none)
    fail<DeviceError>("cpu: products of bf16 need AVX512_BF16 or AMX, this is {}", cpu_isa_text());
}

std::string Bf16Product::implementation() {
  return fmt::format("gemm, {}", name(bf16_isa()));
}

// Packing costs more than it saves where each element is used only a few times.
bool Bf16Product::reads_a_directly() const {
  constexpr std::int64_t few_columns = 128;
  constexpr std::int64_t page = 2048;  // rows that are multiples of it apart share lines of a cache
  const Strides* s = a_->plain();
  return s && shape_.k % square == 0 && s->outer % page != 0 && shape_.n <= few_columns;
}

// The cost of a part: its tiles' time, and the time to pack its operands and to add its result, in
// multiply-adds.
ProductParts Bf16Product::choose_parts(int threads) const {
  constexpr double least_work = 1 << 21, pack_cost = 64, add_cost = 64;
  if (direct_) return {threads, 1, 1};
  const auto m = static_cast<double>(shape_.m), n = static_cast<double>(shape_.n),
             k = static_cast<double>(padded(shape_.k));
  if (m * n * k + pack_cost * k * (m + n) < least_work) return {1, 1, 1};
  const auto divided = [](std::int64_t total, std::int64_t parts) {
    const std::int64_t units = (total + square - 1) / square;
    return static_cast<double>((units + parts - 1) / parts * square);
  };
  return cheapest_parts(
      threads, true, [&](std::int64_t of_m, std::int64_t of_n, std::int64_t of_k) {
        const double rows = divided(shape_.m, of_m), columns = divided(shape_.n, of_n),
                     depth = divided(shape_.k, of_k);
        const double adding =
            of_k > 1 ? add_cost * m * n * static_cast<double>(of_k + 1) / threads : 0;
        return rows * columns * depth + pack_cost * depth * (rows + columns) + adding;
      });
}

std::int64_t Bf16Product::panel_count() const {
  return static_cast<std::int64_t>(panels_.size());
}

// Squares of all of c.
std::int64_t Bf16Product::tiles() const {
  return padded(shape_.m) / square * panel_count();
}

// So many rows that the sums of a block stay in a cache.
std::int64_t Bf16Product::row_block() const {
  const std::int64_t panels = std::min(block_panels, panel_count());
  return std::max<std::int64_t>(1, block_squares / std::max<std::int64_t>(1, panels)) * square;
}

Bf16Product::Scratch Bf16Product::scratch() const {
  const std::int64_t lines = padded(std::min(bf16_block_depth, shape_.k));
  const std::int64_t panels = direct_ ? panel_count() : std::min(block_panels, panel_count());
  const std::int64_t rows = std::min(row_block(), padded(shape_.m));
  const bool keeps_sums = !direct_ && shape_.k > bf16_block_depth;
  const std::int64_t sums = keeps_sums ? rows / square * panels : 1;
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::size_t>(padded(elements)) * sizeof(Bf16);
  };
  Scratch s;
  s.strip = bytes(panels * square * (direct_ ? direct_->steps() * square : lines));
  s.lines = s.strip + bytes(direct_ ? direct_->elements() : square * lines);
  s.sums = s.lines + bytes(square * lines);
  s.bytes = s.sums + static_cast<std::size_t>(sums * square_floats) * sizeof(float);
  return s;
}

std::size_t Bf16Product::workspace_bytes() const {
  const std::int64_t shared = parts_.k > 1 ? parts_.k * tiles() * square_floats : 0;
  return static_cast<std::size_t>(parts_.count()) * scratch().bytes +
         static_cast<std::size_t>(shared) * sizeof(float);
}

void Bf16Product::finish(const Bf16* bias, Bf16* const* c, std::int64_t rows, Range columns,
                         const float* sums, std::int64_t apart, std::int64_t parts) const {
  bf16_loops().finish({.sums = sums,
                       .apart = apart,
                       .parts = parts,
                       .bias = bias ? bias + columns.begin : nullptr,
                       .c = c,
                       .first = columns.begin,
                       .rows = static_cast<int>(rows),
                       .columns = static_cast<int>(columns.size()),
                       .relu = relu_});
}

void Bf16Product::run(const Bf16* a, const Bf16* b, const Bf16* bias, Bf16* c,
                      void* workspace) const {
  const std::size_t each = scratch().bytes;
  auto* scratches = static_cast<std::byte*>(workspace);
  auto* shared =
      reinterpret_cast<float*>(scratches + static_cast<std::size_t>(parts_.count()) * each);
  const std::int64_t apart = tiles() * square_floats;
  const std::int64_t rows = direct_ ? shape_.m / (direct_->w.rows * direct_->w.columns) : shape_.m;
#pragma omp parallel for schedule(static, 1) if (parts_.count() > 1)
  for (std::int64_t index = 0; index < parts_.count(); ++index) {
    const std::int64_t of_k = index % parts_.k;
    const Part part{
        .rows = part_of(rows, direct_ ? 1 : square, parts_.m, index / parts_.k / parts_.n),
        .panels = part_of(panel_count(), 1, parts_.n, index / parts_.k % parts_.n),
        .depth = part_of(shape_.k, square, parts_.k, of_k),
        .a = a,
        .b = b,
        .bias = bias,
        .c = c,
        .sums = parts_.k > 1 ? shared + of_k * apart : nullptr,
        .scratch = scratches + static_cast<std::size_t>(index) * each};
    bf16_loops().begin();
    direct_ ? run_images(part) : run_part(part);
    bf16_loops().end();
  }
  if (parts_.k > 1) add_parts(bias, c, shared);
}

// c from the sums of the parts of the depth.
void Bf16Product::add_parts(const Bf16* bias, Bf16* c, const float* sums) const {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < shape_.m; i += square) {
    const Range rows{i, std::min(shape_.m, i + square)};
    const auto pointers = row_pointers(c, rows);
    for (std::int64_t p = 0; p < panel_count(); ++p)
      finish(bias, pointers.data(), rows.size(), panels_[static_cast<std::size_t>(p)],
             sums + (i / square * panel_count() + p) * square_floats, tiles() * square_floats,
             parts_.k);
  }
}

std::array<Bf16*, 32> Bf16Product::row_pointers(Bf16* c, Range rows) const {
  std::array<Bf16*, square> pointers{};
  for (std::int64_t i = 0; i < rows.size(); ++i)
    pointers[static_cast<std::size_t>(i)] = c + grid_.offset(rows.begin + i);
  return pointers;
}

void Bf16Product::run_part(const Part& part) const {
  const std::int64_t most =
      part.sums || shape_.k <= bf16_block_depth ? part.rows.size() : row_block();
  for_blocks(part.rows, square, std::max<std::int64_t>(most, square), [&](Range rows) {
    for_blocks(part.panels, 1, block_panels, [&](Range panels) {
      if (shape_.k == 0) run_block(part, rows, panels, {0, 0});
      for_blocks(part.depth, square, bf16_block_depth, [&](Range depth) {
        const bool packed = rows.begin > part.rows.begin && panels.size() == part.panels.size() &&
                            depth.size() == part.depth.size();
        if (!packed) pack_b(part, panels, {&depth, 1});
        run_block(part, rows, panels, depth);
      });
    });
  });
}

// Panels of b over some ranges of the depth, each padded; at the beginning of the scratch.
void Bf16Product::pack_b(const Part& part, Range panels, std::span<const Range> depths) const {
  std::int64_t all = 0, done = 0;
  for (const Range& depth : depths) all += padded(depth.size());
  for (const Range& depth : depths) {
    auto* to = reinterpret_cast<Bf16*>(part.scratch) + done * square;
    b_->has_rows() ? pack_rows_of_b(part, panels, depth, all, to)
                   : pack_lines_of_b(part, panels, depth, all, to);
    done += padded(depth.size());
  }
}

void Bf16Product::pack_rows_of_b(const Part& part, Range panels, Range depth, std::int64_t all,
                                 Bf16* to) const {
  const Strides* plain = b_->plain();
  const std::int64_t deep = padded(depth.size());
  auto* copies = reinterpret_cast<Bf16*>(part.scratch + scratch().lines);
  for (std::int64_t p = panels.begin; p < panels.end; ++p, to += square * all) {
    const Range panel = panels_[static_cast<std::size_t>(p)];
    if (plain && panel.size() == square && depth.size() == deep) {
      bf16_loops().pair_rows(part.b + panel.begin * plain->outer + depth.begin, plain->outer, deep,
                             to);
      continue;
    }
    b_->copy_rows(part.b, panel, depth, deep, copies);
    bf16_loops().clear_columns(static_cast<int>(panel.size()), depth.size(), deep, deep, copies);
    bf16_loops().pair_rows(copies, deep, deep, to);
  }
}

// All panels of some lines before the next lines: what is adjacent in memory is read together.
void Bf16Product::pack_lines_of_b(const Part& part, Range panels, Range depth, std::int64_t all,
                                  Bf16* to) const {
  constexpr std::int64_t some = 64;
  auto* copies = reinterpret_cast<Bf16*>(part.scratch + scratch().lines);
  for (std::int64_t k = 0; k < depth.size(); k += some) {
    const Range part_of_depth{depth.begin + k, std::min(depth.end, depth.begin + k + some)};
    const std::int64_t deep = padded(part_of_depth.size());
    for (std::int64_t p = panels.begin; p < panels.end; ++p) {
      const Range panel = panels_[static_cast<std::size_t>(p)];
      Lines lines;
      b_->find_lines(part.b, panel, part_of_depth, copies, lines);
      std::fill(lines.begin() + part_of_depth.size(), lines.begin() + deep, zeros.data());
      bf16_loops().pair_lines(lines.data(), static_cast<int>(panel.size()), deep,
                              to + ((p - panels.begin) * all + k) * square);
    }
  }
}

// A strip of a: in the operand itself, or packed.
const Bf16* Bf16Product::strip_of_a(const Part& part, Range rows, Range depth,
                                    std::int64_t& stride) const {
  if (reads_a_ && rows.size() == square) {
    stride = a_->plain()->outer;
    return part.a + rows.begin * stride + depth.begin;
  }
  const Scratch places = scratch();
  auto* strip = reinterpret_cast<Bf16*>(part.scratch + places.strip);
  stride = padded(depth.size());
  if (a_->has_rows()) {
    a_->copy_rows(part.a, rows, depth, stride, strip);
    bf16_loops().clear_columns(static_cast<int>(rows.size()), depth.size(), stride, stride, strip);
    return strip;
  }
  Lines lines;
  a_->find_lines(part.a, rows, depth, reinterpret_cast<Bf16*>(part.scratch + places.lines), lines);
  std::fill(lines.begin() + depth.size(), lines.begin() + stride, zeros.data());
  bf16_loops().transpose_lines(lines.data(), static_cast<int>(rows.size()), stride, strip);
  return strip;
}

// The next strip of a; after the last one what the next range of the depth packs first.
Ahead Bf16Product::next_reads(const Part& part, Range rows, Range strip, Range panels,
                              Range depth) const {
  Ahead ahead;
  std::int64_t next = strip.end;
  if (next == rows.end && panels.size() > 0) {
    next = rows.begin;
    depth = {depth.end, std::min(part.depth.end, depth.end + depth.size())};
    ahead.add(b_->strides(), part.b,
              {panels_[static_cast<std::size_t>(panels.begin)].begin,
               panels_[static_cast<std::size_t>(panels.end - 1)].end},
              depth);
  }
  ahead.add(a_->strides(), part.a, {next, std::min(rows.end, next + square)}, depth);
  return ahead;
}

void Bf16Product::run_block(const Part& part, Range rows, Range panels, Range depth) const {
  const bool first = depth.begin == part.depth.begin, last = depth.end == part.depth.end;
  const std::int64_t deep = padded(depth.size());
  auto* own = reinterpret_cast<float*>(part.scratch + scratch().sums);
  for (std::int64_t i = rows.begin; i < rows.end; i += square) {
    const Range strip{i, std::min(rows.end, i + square)};
    std::int64_t stride = 0;
    const Bf16* a = strip_of_a(part, strip, depth, stride);
    const auto pointers = row_pointers(part.c, strip);
    Ahead ahead = next_reads(part, rows, strip, panels, depth);
    for (std::int64_t p = panels.begin; p < panels.end; ++p) {
      const Range columns = panels_[static_cast<std::size_t>(p)];
      float* sums = own;
      if (part.sums)
        sums = part.sums + (i / square * panel_count() + p) * square_floats;
      else if (shape_.k > bf16_block_depth)
        sums = own + ((i - rows.begin) / square * panels.size() + p - panels.begin) * square_floats;
      const auto* b = reinterpret_cast<Bf16*>(part.scratch) + (p - panels.begin) * square * deep;
      if (last && !part.sums)  // lines far from each other, which nothing else fetches in time
        for (std::int64_t r = 0; r < strip.size(); ++r)
          __builtin_prefetch(pointers[static_cast<std::size_t>(r)] + columns.begin, 1);
      LinesAhead lines = ahead.next(deep / square * tiles_of_square * lines_at_step);
      bf16_loops().multiply({.a = a,
                             .stride = stride,
                             .offsets = packed_offsets.data(),
                             .steps = deep / square,
                             .b = b,
                             .rows = static_cast<int>(strip.size()),
                             .columns = static_cast<int>(columns.size()),
                             .accumulate = !first,
                             .sums = sums,
                             .ahead = lines.count > 0 ? &lines : nullptr});
      if (last && !part.sums) finish(part.bias, pointers.data(), strip.size(), columns, sums, 0, 1);
    }
  }
}

// Image by image, each copied with its zeros.
void Bf16Product::run_images(const Part& part) const {
  const Direct& d = *direct_;
  const Scratch places = scratch();
  auto* image = reinterpret_cast<Bf16*>(part.scratch + places.strip);
  auto* sums = reinterpret_cast<float*>(part.scratch + places.sums);
  pack_b(part, {0, panel_count()}, d.depth);
  for (std::int64_t n = part.rows.begin; n < part.rows.end; ++n) {
    d.copy(part.a + n * d.w.height * d.w.width * d.w.pitch, image);
    for (std::int64_t q = 0; q < d.windows(); q += square) {
      const std::int64_t rows = std::min<std::int64_t>(square, d.windows() - q);
      std::array<Bf16*, square> pointers{};
      for (std::int64_t r = 0, i = q / d.line, j = q % d.line; r < rows; ++r) {
        if (j < d.w.columns)
          pointers[static_cast<std::size_t>(r)] =
              part.c + grid_.offset((n * d.w.rows + i) * d.w.columns + j);
        if (++j < d.line) continue;
        j = 0;
        ++i;
      }
      for (std::int64_t p = 0; p < panel_count(); ++p) {
        const Range columns = panels_[static_cast<std::size_t>(p)];
        const auto* b = reinterpret_cast<Bf16*>(part.scratch) + p * d.steps() * square * square;
        bf16_loops().multiply({.a = image + q * d.w.channels,
                               .stride = d.w.channels,
                               .offsets = d.offsets.data(),
                               .steps = d.steps(),
                               .b = b,
                               .rows = static_cast<int>(rows),
                               .columns = static_cast<int>(columns.size()),
                               .accumulate = false,
                               .sums = sums,
                               .ahead = nullptr});
        finish(part.bias, pointers.data(), rows, columns, sums, 0, 1);
      }
    }
  }
}

}  // namespace warpstep::cpu

// Products of bf16. c is computed in squares of 32x32, whose operands are packed: a strip of a as
// rows of its depth, a panel of b as rows of pairs, which is what both instruction sets read. A
// strip stays in the first-level cache and meets every panel of a block of b, which stay in the
// second-level cache. A depth of more than one block is summed in floats in the workspace. AMX
// multiplies 16 times as fast as AVX-512 does in float, so packing and memory bound most products.
// Figures: bench/RECORDS.md.
#include "kernels/cpu/gemm_bf16.h"

#include <immintrin.h>
#include <omp.h>

#include <fmt/format.h>
#include <array>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "kernels/cpu/strided_tile.h"

namespace warpstep::cpu {
namespace {

constexpr int square = 32;  // rows and columns of a square of c, and the unit of the depth
constexpr std::int64_t square_floats = square * square;
constexpr std::int64_t block_depth = 640, block_columns = 768;
constexpr std::int64_t block_squares = 256;  // whose sums are in the workspace: 1 MiB

// Elements [begin, end) of a line, from `from` on; zeros around them.
struct Bf16Piece {
  const Bf16* from;
  std::int64_t begin, end;
};

// sums [32, 32] = (accumulate ? sums : 0) + a b; a(i, k) = a[i * stride + k].
struct Bf16Tile {
  const Bf16* a;
  std::int64_t stride;
  const Bf16* b;
  std::int64_t depth;
  int rows, columns;
  bool accumulate;
  float* sums;
};

struct Bf16TileEnd {
  const float* sums;
  std::int64_t apart, parts;  // of the sums to be added
  const Bf16* bias;           // of the tile's columns, or null
  Bf16* const* c;             // a pointer for each row
  int rows, columns;
  bool relu;
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma,amx-tile,amx-bf16")
namespace gemm_bf16 {
constexpr int register_lanes = 16, tile_rows = 11;
#include "kernels/cpu/gemm_bf16.inc"
}  // namespace gemm_bf16
#pragma GCC pop_options

struct Bf16Loops {
  void (*begin)();  // of the thread's tiles
  void (*multiply)(const Bf16Tile&);
  void (*end)();
};

const Bf16Loops& bf16_loops() {
  static constexpr Bf16Loops amx{gemm_bf16::amx_begin, gemm_bf16::amx_tiles, gemm_bf16::amx_end};
  static constexpr Bf16Loops dot{gemm_bf16::no_configuration, gemm_bf16::dot_tiles,
                                 gemm_bf16::no_configuration};
  return bf16_isa() == Bf16Isa::amx ? amx : dot;
}

constexpr std::int64_t padded(std::int64_t extent) {
  return (extent + square - 1) / square * square;
}

alignas(64) constexpr std::array<Bf16, square> zeros{};
using Lines = std::array<const Bf16*, block_depth>;

// Calls run(block) for equal blocks of at most `most`, multiples of a square but for the last.
template <class Run>
void for_blocks(Range range, std::int64_t most, Run run) {
  const std::int64_t count = (range.size() + most - 1) / most;
  for (std::int64_t i = 0; i < count; ++i) {
    const Range part = part_of(range.size(), square, count, i);
    run(Range{range.begin + part.begin, range.begin + part.end});
  }
}

}  // namespace

class Bf16Operand {
 public:
  virtual ~Bf16Operand() = default;
  // Whether the depth is what is adjacent in memory; then it is read as rows, else as lines.
  virtual bool has_rows() const = 0;
  // to [outer, stride] in its first columns = rows of the operand.
  virtual void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                         Bf16* to) const = 0;
  // For each k of the depth, where the elements of `outer`, a square at most, lie next to each
  // other: in the operand, or copied to scratch [depth, square].
  virtual void find_lines(const Bf16* data, Range outer, Range depth, Bf16* scratch,
                          Lines& lines) const = 0;
  // The strides, if the operand is a plain matrix of rows.
  virtual const Strides* plain() const { return nullptr; }
};

namespace {

class Bf16Matrix final : public Bf16Operand {
 public:
  explicit Bf16Matrix(Strides strides) : s_(std::move(strides)) {
    if (!s_.segments.empty()) return;
    s_.segments.push_back(0);
    s_.run = std::int64_t{1} << 62;
  }

  bool has_rows() const override { return s_.depth == 1; }

  void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                 Bf16* to) const override {
    std::array<Bf16Piece, square> pieces;
    const auto rows = static_cast<int>(outer.size());
    for (std::int64_t k = depth.begin; k < depth.end;) {
      const std::int64_t count = std::min(depth.end - k, s_.run - k % s_.run);
      for (std::int64_t i = 0; i < rows; ++i)
        pieces[static_cast<std::size_t>(i)] = {at(data, outer.begin + i, k), 0, count};
      gemm_bf16::copy_pieces(pieces.data(), rows, count, stride, to + (k - depth.begin));
      k += count;
    }
  }

  void find_lines(const Bf16* data, Range outer, Range depth, Bf16*, Lines& lines) const override {
    for (std::int64_t k = depth.begin; k < depth.end; ++k)
      lines[static_cast<std::size_t>(k - depth.begin)] = at(data, outer.begin, k);
  }

  const Strides* plain() const override {
    return has_rows() && s_.segments.size() == 1 && s_.segments[0] == 0 ? &s_ : nullptr;
  }

 private:
  const Bf16* at(const Bf16* data, std::int64_t i, std::int64_t k) const {
    return data + i * s_.outer + s_.segments[static_cast<std::size_t>(k / s_.run)] +
           k % s_.run * s_.depth;
  }

  Strides s_;
};

class Bf16Windows final : public Bf16Operand {
 public:
  explicit Bf16Windows(const WindowMatrix& matrix)
      : w_(matrix.windows),
        outer_(matrix.outer),
        adjacent_(w_.step_w == 1 && w_.pitch == w_.channels) {}

  bool has_rows() const override { return outer_ == Outer::windows; }

  void copy_rows(const Bf16* data, Range outer, Range depth, std::int64_t stride,
                 Bf16* to) const override {
    std::array<Bf16Piece, square> pieces;
    for_runs(depth, [&](const Run& run, std::int64_t first) {
      WindowCursor at(w_, outer.begin);
      for (std::int64_t i = 0; i < outer.size(); ++i, at.next())
        pieces[static_cast<std::size_t>(i)] = piece(data, at, run);
      gemm_bf16::copy_pieces(pieces.data(), static_cast<int>(outer.size()), run.count, stride,
                             to + first);
    });
  }

  void find_lines(const Bf16* data, Range outer, Range depth, Bf16* scratch,
                  Lines& lines) const override {
    int runs = 0;
    for_runs(outer, [&](const Run&, std::int64_t) { ++runs; });
    for_runs(outer, [&](const Run& run, std::int64_t first) {
      WindowCursor at(w_, depth.begin);
      for (std::int64_t k = 0; k < depth.size(); ++k, at.next()) {
        const Bf16Piece p = piece(data, at, run);
        const Bf16*& line = lines[static_cast<std::size_t>(k)];
        if (runs == 1 && p.begin == p.end) {
          line = zeros.data();
        } else if (runs == 1 && p.end - p.begin == run.count) {
          line = p.from;
        } else {
          gemm_bf16::copy_pieces(&p, 1, run.count, 0, scratch + k * square + first);
          line = scratch + k * square;
        }
      }
    });
  }

 private:
  // Features that are adjacent in memory: of a row of taps, or of one tap.
  struct Run {
    std::int64_t tap_h, tap_w, first, count;
  };

  template <class Visit>  // visit(run, its place in the range)
  void for_runs(Range features, Visit visit) const {
    const std::int64_t line = adjacent_ ? w_.taps_w * w_.channels : w_.channels;
    for (std::int64_t f = features.begin; f < features.end;) {
      const std::int64_t group = f / line, first = f % line;
      const std::int64_t count = std::min(features.end - f, line - first);
      visit(adjacent_ ? Run{group, 0, first, count}
                      : Run{group / w_.taps_w, group % w_.taps_w, first, count},
            f - features.begin);
      f += count;
    }
  }

  // The part of a run that lies in the image.
  Bf16Piece piece(const Bf16* data, const WindowCursor& at, const Run& run) const {
    const std::int64_t h = at.line(run.tap_h), v = at.column(run.tap_w);
    if (h < 0 || h >= w_.height) return {data, 0, 0};
    std::int64_t begin = 0, end = run.count;
    if (adjacent_) {
      begin = std::clamp(-v * w_.channels - run.first, std::int64_t{0}, run.count);
      end = std::clamp((w_.width - v) * w_.channels - run.first, begin, run.count);
    } else if (v < 0 || v >= w_.width) {
      end = 0;
    }
    return {data + (at.offset(h, v) + run.first + begin), begin, end};
  }

  Windows w_;
  Outer outer_;
  bool adjacent_;
};

std::shared_ptr<const Bf16Operand> bf16_operand(Source source) {
  if (auto* strides = std::get_if<Strides>(&source))
    return std::make_shared<Bf16Matrix>(std::move(*strides));
  return std::make_shared<Bf16Windows>(std::get<WindowMatrix>(source));
}

}  // namespace

Bf16Product::Bf16Product(Shape shape, Source a, Source b, PixelGrid c, bool relu)
    : shape_(shape),
      a_(bf16_operand(std::move(a))),
      b_(bf16_operand(std::move(b))),
      grid_(c),
      relu_(relu),
      direct_a_(reads_a_directly()),
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

// Tries every way to divide the product among the threads. The cost of a part: its tiles' time, and
// the time to pack its operands and to add its result, in multiply-adds.
Bf16Product::Parts Bf16Product::choose_parts(int threads) const {
  constexpr double least_work = 1 << 21, pack_cost = 64, add_cost = 64;
  const auto m = static_cast<double>(shape_.m), n = static_cast<double>(shape_.n),
             k = static_cast<double>(shape_.k);
  if (m * n * k + pack_cost * k * (m + n) < least_work) return {1, 1, 1};
  const auto divided = [](std::int64_t total, std::int64_t parts) {
    const std::int64_t units = (total + square - 1) / square;
    return static_cast<double>((units + parts - 1) / parts * square);
  };
  Parts best{1, 1, 1};
  double least = 0;
  for (std::int64_t of_m = 1; of_m <= threads; ++of_m)
    for (std::int64_t of_n = 1; of_m * of_n <= threads; ++of_n)
      for (std::int64_t of_k = 1; of_m * of_n * of_k <= threads; ++of_k) {
        const double rows = divided(shape_.m, of_m), columns = divided(shape_.n, of_n),
                     depth = divided(shape_.k, of_k);
        const double adding =
            of_k > 1 ? add_cost * m * n * static_cast<double>(of_k + 1) / threads : 0;
        const double cost = rows * columns * depth + pack_cost * depth * (rows + columns) + adding;
        if (least > 0 && cost >= least) continue;
        least = cost;
        best = {of_m, of_n, of_k};
      }
  return best;
}

// Squares of all of c.
std::int64_t Bf16Product::tiles() const {
  return padded(shape_.m) / square * (padded(shape_.n) / square);
}

// So many rows that the sums of a block stay in a cache.
std::int64_t Bf16Product::row_block() const {
  const std::int64_t panels = padded(std::min(block_columns, shape_.n)) / square;
  return std::max<std::int64_t>(1, block_squares / panels) * square;
}

Bf16Product::Scratch Bf16Product::scratch() const {
  const std::int64_t depth = padded(std::min(block_depth, shape_.k)),
                     columns = padded(std::min(block_columns, shape_.n));
  const std::int64_t rows = std::min(row_block(), padded(shape_.m));
  const std::int64_t floats =
      shape_.k > block_depth ? rows / square * (columns / square) * square_floats : square_floats;
  Scratch s;
  s.strip = static_cast<std::size_t>(columns * depth) * sizeof(Bf16);
  s.lines = s.strip + static_cast<std::size_t>(square * depth) * sizeof(Bf16);
  s.sums = s.lines + static_cast<std::size_t>(square * depth) * sizeof(Bf16);
  s.bytes = s.sums + static_cast<std::size_t>(floats) * sizeof(float);
  return s;
}

std::size_t Bf16Product::workspace_bytes() const {
  const std::int64_t shared = parts_.k > 1 ? parts_.k * tiles() * square_floats : 0;
  return static_cast<std::size_t>(parts_.count()) * scratch().bytes +
         static_cast<std::size_t>(shared) * sizeof(float);
}

void Bf16Product::finish(const Bf16* bias, Bf16* c, Range rows, Range columns, const float* sums,
                         std::int64_t apart, std::int64_t parts) const {
  std::array<Bf16*, square> pointers;
  for (std::int64_t i = 0; i < rows.size(); ++i)
    pointers[static_cast<std::size_t>(i)] = c + grid_.offset(rows.begin + i) + columns.begin;
  gemm_bf16::finish_tile({.sums = sums,
                          .apart = apart,
                          .parts = parts,
                          .bias = bias ? bias + columns.begin : nullptr,
                          .c = pointers.data(),
                          .rows = static_cast<int>(rows.size()),
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
#pragma omp parallel for schedule(static, 1) if (parts_.count() > 1)
  for (std::int64_t part = 0; part < parts_.count(); ++part) {
    const std::int64_t of_k = part % parts_.k;
    bf16_loops().begin();
    run_part({.rows = part_of(shape_.m, square, parts_.m, part / parts_.k / parts_.n),
              .columns = part_of(shape_.n, square, parts_.n, part / parts_.k % parts_.n),
              .depth = part_of(shape_.k, square, parts_.k, of_k),
              .a = a,
              .b = b,
              .bias = bias,
              .c = c,
              .sums = parts_.k > 1 ? shared + of_k * apart : nullptr,
              .scratch = scratches + static_cast<std::size_t>(part) * each});
    bf16_loops().end();
  }
  if (parts_.k == 1) return;
  const std::int64_t panels = padded(shape_.n) / square;
#pragma omp parallel for schedule(static)
  for (std::int64_t tile = 0; tile < tiles(); ++tile) {
    const std::int64_t i = tile / panels * square, j = tile % panels * square;
    finish(bias, c, {i, std::min(shape_.m, i + square)}, {j, std::min(shape_.n, j + square)},
           shared + tile * square_floats, apart, parts_.k);
  }
}

void Bf16Product::run_part(const Part& part) const {
  const std::int64_t most = part.sums || shape_.k <= block_depth ? part.rows.size() : row_block();
  for_blocks(part.rows, std::max<std::int64_t>(most, square), [&](Range rows) {
    for_blocks(part.columns, block_columns, [&](Range columns) {
      if (shape_.k == 0) run_block(part, rows, columns, {0, 0});
      for_blocks(part.depth, block_depth, [&](Range depth) {
        const bool packed = rows.begin > part.rows.begin && columns.size() == part.columns.size() &&
                            depth.size() == part.depth.size();
        if (!packed) pack_b(part, columns, depth);
        run_block(part, rows, columns, depth);
      });
    });
  });
}

// Panels of b, at the beginning of the scratch.
void Bf16Product::pack_b(const Part& part, Range columns, Range depth) const {
  const Scratch places = scratch();
  const std::int64_t deep = padded(depth.size());
  auto* to = reinterpret_cast<Bf16*>(part.scratch);
  auto* copies = reinterpret_cast<Bf16*>(part.scratch + places.lines);
  for (std::int64_t j = columns.begin; j < columns.end; j += square, to += square * deep) {
    const Range panel{j, std::min(columns.end, j + square)};
    if (b_->has_rows()) {
      b_->copy_rows(part.b, panel, depth, deep, copies);
      gemm_bf16::clear_columns(static_cast<int>(panel.size()), depth.size(), deep, deep, copies);
      gemm_bf16::pair_rows(copies, deep, to);
      continue;
    }
    Lines lines;
    b_->find_lines(part.b, panel, depth, copies, lines);
    std::fill(lines.begin() + depth.size(), lines.begin() + deep, zeros.data());
    gemm_bf16::pair_lines(lines.data(), static_cast<int>(panel.size()), deep, to);
  }
}

// A strip of a: in the operand itself, or packed.
const Bf16* Bf16Product::strip_of_a(const Part& part, Range rows, Range depth,
                                    std::int64_t& stride) const {
  if (direct_a_ && rows.size() == square) {
    stride = a_->plain()->outer;
    return part.a + rows.begin * stride + depth.begin;
  }
  const Scratch places = scratch();
  auto* strip = reinterpret_cast<Bf16*>(part.scratch + places.strip);
  stride = padded(depth.size());
  if (a_->has_rows()) {
    a_->copy_rows(part.a, rows, depth, stride, strip);
    gemm_bf16::clear_columns(static_cast<int>(rows.size()), depth.size(), stride, stride, strip);
    return strip;
  }
  Lines lines;
  a_->find_lines(part.a, rows, depth, reinterpret_cast<Bf16*>(part.scratch + places.lines), lines);
  std::fill(lines.begin() + depth.size(), lines.begin() + stride, zeros.data());
  gemm_bf16::transpose_lines(lines.data(), static_cast<int>(rows.size()), stride, strip);
  return strip;
}

void Bf16Product::run_block(const Part& part, Range rows, Range columns, Range depth) const {
  const bool first = depth.begin == part.depth.begin, last = depth.end == part.depth.end;
  const std::int64_t deep = padded(depth.size()), panels = padded(columns.size()) / square,
                     all_panels = padded(shape_.n) / square;
  auto* own = reinterpret_cast<float*>(part.scratch + scratch().sums);
  for (std::int64_t i = rows.begin; i < rows.end; i += square) {
    const Range strip{i, std::min(rows.end, i + square)};
    std::int64_t stride = 0;
    const Bf16* a = strip_of_a(part, strip, depth, stride);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t j = columns.begin + panel * square;
      const Range width{j, std::min(columns.end, j + square)};
      float* sums = own;
      if (part.sums)
        sums = part.sums + (i / square * all_panels + j / square) * square_floats;
      else if (shape_.k > block_depth)
        sums = own + ((i - rows.begin) / square * panels + panel) * square_floats;
      bf16_loops().multiply({.a = a,
                             .stride = stride,
                             .b = reinterpret_cast<Bf16*>(part.scratch) + panel * square * deep,
                             .depth = deep,
                             .rows = static_cast<int>(strip.size()),
                             .columns = static_cast<int>(width.size()),
                             .accumulate = !first,
                             .sums = sums});
      if (last && !part.sums) finish(part.bias, part.c, strip, width, sums, 0, 1);
    }
  }
}

}  // namespace warpstep::cpu

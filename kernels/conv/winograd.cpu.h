// The tiles of Winograd's convolution, how blocks of them are ordered, and where their transforms
// lie. See winograd.cpu.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace warpstep::cpu {

// The output channels of one tile of a product: as many vectors as the tile has, at last fewer.
struct Panel {
  std::int64_t begin, columns;
};

constexpr std::int64_t narrowest_panel = 8;

// Which transforms: of a convolution with stride 1; of one whose images are 2x2 pixels, each a
// tile; of one with stride 2, or of the latter's data gradient, which has the tiles of what it
// reads: their results are twice as high and wide.
enum class WinogradForm : std::uint8_t { unit, tiny, strided, strided_gradient };

// Positions of a transformed tile along an axis.
inline int positions_across(WinogradForm form) {
  return form == WinogradForm::tiny ? 3 : form == WinogradForm::unit ? 6 : 9;
}

// The tiles along one axis: `whole` ones with four outputs each, or all of a tiny image's, then
// short ones with three.
struct TileAxis {
  std::int64_t whole, short_ones;

  // A pool's windows begin with even outputs: then no tile follows a short one.
  TileAxis(std::int64_t outputs, WinogradForm form, bool pooled) {
    const std::int64_t all = (outputs + 3) / 4;
    short_ones = form == WinogradForm::tiny ? 0 : std::min(4 * all - outputs, pooled ? 1 : all);
    whole = all - short_ones;
  }
  std::int64_t tiles() const { return whole + short_ones; }
  // Of all tiles' products along the axis.
  std::int64_t points(WinogradForm form) const {
    const int across = positions_across(form);
    return across * whole + (across < 9 ? 5 : 7) * short_ones;
  }
  std::int64_t first_output(std::int64_t tile) const {
    return 4 * tile - std::max<std::int64_t>(0, tile - whole);
  }
  std::int64_t outputs(std::int64_t tile) const { return tile < whole ? 4 : 3; }
};

struct Winograd {
  std::int64_t images, height, width, in;   // of what the convolution reads
  std::int64_t out_height, out_width, out;  // of its result
  std::int64_t padding;
  bool relu, pool_relu;
  bool turned;  // the weights are those of the convolution whose data gradient this is
  bool pooled;  // with a pool on either side
  WinogradForm form;

  TileAxis rows() const {
    return {form == WinogradForm::strided_gradient ? height : out_height, form, pooled};
  }
  TileAxis columns() const {
    return {form == WinogradForm::strided_gradient ? width : out_width, form, pooled};
  }
  std::int64_t tiles() const { return images * rows().tiles() * columns().tiles(); }
  // Multiply-adds for each pair of channels; transforms multiply little.
  std::int64_t points() const { return images * rows().points(form) * columns().points(form); }
  double flops() const { return 2.0 * static_cast<double>(points() * in * out); }
  // Positions of a transformed tile, row by row.
  int across() const { return positions_across(form); }
  int positions() const { return across() * across(); }
  int row_of(int p) const {  // divided by constants: blocks of few channels spend time here
    return form == WinogradForm::unit ? p / 6 : form == WinogradForm::tiny ? p / 3 : p / 9;
  }
  int column_of(int p) const { return p - row_of(p) * across(); }
  // Matrices of transformed weights. With stride 2 the last one of an axis belongs to four
  // positions.
  int matrices_across() const { return std::min(across(), 6); }
  int matrices() const { return matrices_across() * matrices_across(); }
  int matrix_of(int p) const {
    return std::min(row_of(p), 5) * matrices_across() + std::min(column_of(p), 5);
  }
  // Whether no position before p has the same one.
  bool is_first_of_matrix(int p) const { return row_of(p) < 6 && column_of(p) < 6; }
  // The positions that a matrix belongs to.
  template <class Visit>
  void for_positions_of(int matrix, Visit visit) const {
    const int row = matrix / matrices_across(), column = matrix % matrices_across();
    for (int i = row; i < (row < 5 ? row + 1 : across()); ++i)
      for (int j = column; j < (column < 5 ? column + 1 : across()); ++j) visit(i * across() + j);
  }
  // Whether short tiles need no product in this row or column of positions: of the point at
  // infinity, and with stride 2 of the middle tap's fourth output.
  bool only_in_whole(int i) const { return across() < 9 ? i == 5 : i == 4 || i == 8; }
  // Floats from one position of the transformed weights to the next. Not a power of two: positions
  // would share lines of the cache.
  std::int64_t weight_stride() const { return in * padded() + 16; }
  std::int64_t weight_floats() const { return matrices() * weight_stride(); }
  // The columns of a product: the output channels, rounded up to the narrowest panel.
  std::int64_t padded() const {
    return (out + narrowest_panel - 1) / narrowest_panel * narrowest_panel;
  }
  // Floats from one tile's channels to the next one's, where tiles are the depth of a product. Not
  // a multiple of 512 bytes: tiles so far apart share an eighth, or less, of a first-level cache.
  std::int64_t v_pitch() const { return apart(in); }
  std::int64_t q_pitch() const { return apart(padded()); }
  static std::int64_t apart(std::int64_t channels) {
    return channels % 128 == 0 ? channels + 16 : channels;
  }
  Panel panel_of(std::int64_t channel, std::int64_t widest) const {
    for (std::int64_t begin = 0;;) {
      std::int64_t columns = widest;
      while (columns > padded() - begin) columns /= 2;
      if (channel < begin + columns) return {begin, columns};
      begin += columns;
    }
  }
};

// A tile's outputs along both axes, some of which may be outside of the image.
struct TilePlace {
  std::int64_t image, top, left, rows, columns;
};

// A range of a block's tiles.
struct TileRange {
  std::int64_t begin, end;
};

// One of several parts of the batch's tiles, with its share of every kind: what remains of each
// kind goes to other blocks. They are in an order in which the tiles that a position needs are
// adjacent: those that are short in rows, in neither, in columns, and in both.
class TileBlock {
 public:
  TileBlock(const Winograd& w, std::int64_t block, std::int64_t blocks)
      : w_(w), rows_(w.rows()), columns_(w.columns()) {
    const TileAxis &r = rows_, &c = columns_;
    kinds_ = {{{r.whole, 0, r.short_ones, c.whole},
               {0, 0, r.whole, c.whole},
               {0, c.whole, r.whole, c.short_ones},
               {r.whole, c.whole, r.short_ones, c.short_ones}}};
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      Kind& k = kinds_[i];
      const std::int64_t phase = static_cast<std::int64_t>(i) * blocks / 4;
      const auto first_of = [&](std::int64_t b) {
        return (w.images * k.rows * k.columns * b + phase) / blocks;
      };
      k.first = first_of(block);
      k.begin = count_;
      count_ += first_of(block + 1) - k.first;
    }
  }

  std::int64_t count() const { return count_; }
  // The tiles of the blocks before this one.
  std::int64_t before() const {
    std::int64_t tiles = 0;
    for (const Kind& k : kinds_) tiles += k.first;
    return tiles;
  }
  TilePlace operator[](std::int64_t tile) const {
    std::size_t kind = 3;
    while (tile < kinds_[kind].begin) --kind;
    const Kind& k = kinds_[kind];
    const std::int64_t of_kind = k.first + tile - k.begin;
    const std::int64_t line = of_kind / k.columns, image = line / k.rows;
    const std::int64_t row = k.row + line - image * k.rows;
    const std::int64_t column = k.column + of_kind - line * k.columns;
    return {image, rows_.first_output(row), columns_.first_output(column), rows_.outputs(row),
            columns_.outputs(column)};
  }
  // The tiles that need a product at position p.
  TileRange at(int p) const {
    const bool whole_rows = w_.only_in_whole(w_.row_of(p));
    const bool whole_columns = w_.only_in_whole(w_.column_of(p));
    return {whole_rows ? kinds_[1].begin : 0,
            whole_columns ? kinds_[2].begin : (whole_rows ? kinds_[3].begin : count_)};
  }

  // The most tiles of one of so many blocks.
  static std::int64_t most(const Winograd& w, std::int64_t blocks) {
    std::int64_t tiles = 0;
    for (std::int64_t i = 0; i < blocks; ++i)
      tiles = std::max(tiles, TileBlock(w, i, blocks).count_);
    return tiles;
  }

 private:
  // In each image a rectangle of tiles from (row, column) on; of the batch's, those from `first` on
  // are in this block, where they begin at `begin`.
  struct Kind {
    std::int64_t row, column, rows, columns, first, begin;
  };
  const Winograd& w_;
  TileAxis rows_, columns_;
  std::array<Kind, 4> kinds_;
  std::int64_t count_ = 0;
};

// Where transforms of tiles are: position p of tile t and channel c is at[c / part * part_stride +
// p * stride + t * pitch + c % part].
struct Transforms {
  float* at;
  std::int64_t stride, pitch, part, part_stride;

  // One part of the channels after the other, each with all positions of all tiles.
  static Transforms by_parts(std::int64_t part, std::int64_t tiles, std::int64_t positions) {
    const std::int64_t stride = tiles * part + 16;
    return {nullptr, stride, part, part, positions * stride};
  }
  std::int64_t floats(std::int64_t channels) const {
    return (channels + part - 1) / part * part_stride;
  }
  std::int64_t end_of_part(std::int64_t begin, std::int64_t channels) const {
    return channels - begin < part ? channels : begin + part;
  }
  // The same, from a tile on.
  Transforms from(float* workspace, std::int64_t tile) const {
    return {workspace + tile * pitch, stride, pitch, part, part_stride};
  }
};

}  // namespace warpstep::cpu

// Shared by the kernels of the stem's convolution: tiles of 16x16 outputs with the pixels that they
// read in shared memory, 4 channels of each. A row of the kernel with an eighth tap, of weight 0,
// is then 64 adjacent bytes, which begin 16 bytes further for the next output: rows of the matrices
// that the tensor cores multiply are read from the pixels as they are, without bank conflicts.
#pragma once

#include "kernels/conv/narrow.cuh"
#include "kernels/conv/stem.cuda.h"

namespace warpstep::cuda {

inline constexpr unsigned stem_threads = 128;
inline constexpr unsigned stem_taps = 7;                       // in a row and in a column
inline constexpr unsigned stem_stored = 8, stem_channels = 4;  // of a pixel; of which are read
inline constexpr unsigned stem_edge = 16;                      // outputs of a tile, each way
// A strip of a tile is computed at once, from `strip_lines` lines of pixels.
inline constexpr unsigned strip_rows = 4, strip_lines = 2 * strip_rows + stem_taps - 2;
inline constexpr unsigned stem_lines = 2 * stem_edge + stem_taps - 2;
inline constexpr unsigned stem_line_pixels = stem_lines + 1;  // for the eighth tap
inline constexpr unsigned stem_pixel_bytes = stem_channels * 2;
inline constexpr unsigned stem_pitch = stem_line_pixels * stem_pixel_bytes;  // bytes of a line
inline constexpr unsigned stem_patch_bytes = stem_lines * stem_pitch;
static_assert(stem_pitch % 16 == 0);

struct StemTiles {
  unsigned height, width, out_height, out_width;  // of an image
  unsigned down, across, count;                   // tiles of an image, and in all
};

// A tile's image and its first output.
struct StemPlace {
  unsigned image, row, column;
  __device__ StemPlace(const StemTiles& tiles, unsigned tile)
      : image(tile / (tiles.down * tiles.across)),
        row(tile / tiles.across % tiles.down * stem_edge),
        column(tile % tiles.across * stem_edge) {}
  // The index among all outputs of one of the tile.
  __device__ std::size_t index(const StemTiles& tiles, unsigned tile_row,
                               unsigned tile_column) const {
    return (std::size_t{image} * tiles.out_height + row + tile_row) * tiles.out_width + column +
           tile_column;
  }
};

// Begins to copy what a tile reads of x; 0 outside of the image.
template <class T>
__device__ inline void load_stem_patch(const T* __restrict__ x, const StemTiles& tiles,
                                       const StemPlace& place, unsigned char* patch) {
  constexpr unsigned padding = stem_taps / 2;
  const T* const image = x + std::size_t{place.image} * tiles.height * tiles.width * stem_stored;
  const unsigned top = 2 * place.row - padding, left = 2 * place.column - padding;  // wrap
  for (unsigned i = threadIdx.x; i < stem_lines * stem_line_pixels; i += stem_threads) {
    const unsigned row = top + i / stem_line_pixels, column = left + i % stem_line_pixels;
    const bool inside = row < tiles.height && column < tiles.width;
    begin_copy<stem_pixel_bytes>(patch + i * stem_pixel_bytes,
                                 image + (inside ? (row * tiles.width + column) * stem_stored : 0),
                                 !inside);
  }
}

// What the lane reads of a strip's first line: 16 rows of 8 numbers, and 16 more beside them.
__device__ inline unsigned stem_lane_offset(unsigned lane) {
  return (lane % 16 + lane / 16) * 16;
}

// The row of the kernel that reads a strip's line for one of its outputs' rows; none from 7 on.
__device__ inline constexpr unsigned kernel_row(unsigned line, unsigned row) {
  return line - 2 * row;
}

inline StemTiles stem_tiles(const StemConv& conv) {
  const auto out_height = static_cast<unsigned>(conv.out_height()),
             out_width = static_cast<unsigned>(conv.out_width());
  const unsigned down = (out_height + stem_edge - 1) / stem_edge,
                 across = (out_width + stem_edge - 1) / stem_edge;
  return {.height = static_cast<unsigned>(conv.height),
          .width = static_cast<unsigned>(conv.width),
          .out_height = out_height,
          .out_width = out_width,
          .down = down,
          .across = across,
          .count = static_cast<unsigned>(conv.images) * down * across};
}

[[noreturn]] inline void refuse_stem(const char* kernel, const StemConv& conv) {
  refuse_conv(kernel, {conv.images, conv.height, conv.width, stem_stored}, conv.out);
}

// Two blocks per multiprocessor; block b computes tiles b, b + gridDim.x, ...
inline unsigned stem_blocks(const StemTiles& tiles, int multiprocessors) {
  return std::clamp(2 * static_cast<unsigned>(multiprocessors), 1U, tiles.count);
}

}  // namespace warpstep::cuda

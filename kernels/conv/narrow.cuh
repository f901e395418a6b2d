// Shared by the kernels of narrow convolutions: tiles of pixels with their border in shared memory,
// where each of the 9 taps reads them at another offset. Rows of the matrices that the tensor cores
// multiply are pixels, 16 bytes are 8 channels, so that no matrix of patches is ever written.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/conv/narrow.cuda.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {

inline constexpr unsigned narrow_threads = 256, narrow_warps = narrow_threads / 32;
inline constexpr unsigned patch_pixels = 640;  // of a tile with its border, at most
inline constexpr unsigned taps = 9;
inline constexpr std::size_t most_shared_bytes =
    99 * 1024;  // of a block, on the smallest of the devices

// Bytes between rows of `bytes` bytes in shared memory: an odd multiple of 16, so that 8 successive
// rows lie in different banks.
__host__ __device__ inline constexpr unsigned bank_pitch(unsigned bytes) {
  return bytes / 16 % 2 == 0 ? bytes + 16 : bytes;
}

// How images are cut into tiles: `tile_rows` rows of `tile_images` images each.
struct NarrowTiles {
  unsigned images, height, width;   // of the whole
  unsigned tile_images, tile_rows;  // of a tile; several images only if their rows are whole
  unsigned pixels;                  // of a tile
  unsigned count, in_image;         // tiles in all, and from top to bottom of an image
  Divider by_width, by_rows, by_bordered_rows;

  // Of the tile's pixel: its image, row and column.
  struct Pixel {
    unsigned image, row, column;
  };
  __device__ Pixel pixel(unsigned p) const {
    const unsigned line = by_width.split(p);
    unsigned row = line;
    const unsigned image = by_rows.split(row);
    return {image, row, p};
  }
  // The index in the tile with its border of the pixel that tap 0 reads for `at`.
  __device__ unsigned bordered(const Pixel& at) const {
    return (at.image * (tile_rows + 2) + at.row) * (width + 2) + at.column;
  }
  __host__ __device__ unsigned bordered_pixels() const {
    return tile_images * (tile_rows + 2) * (width + 2);
  }
};

// Of a power of 2.
__device__ inline unsigned log2_exact(unsigned n) {
  return 31U - static_cast<unsigned>(__clz(static_cast<int>(n)));
}

// One tile's place among the images.
struct TilePlace {
  unsigned image, row;
  __device__ TilePlace(const NarrowTiles& tiles, unsigned tile)
      : image(tile / tiles.in_image * tiles.tile_images),
        row(tile % tiles.in_image * tiles.tile_rows) {}
  __device__ bool has(const NarrowTiles& tiles, const NarrowTiles::Pixel& at) const {
    return image + at.image < tiles.images && row + at.row < tiles.height;
  }
  // The index among all pixels.
  __device__ std::size_t index(const NarrowTiles& tiles, const NarrowTiles::Pixel& at) const {
    return (std::size_t{image + at.image} * tiles.height + row + at.row) * tiles.width + at.column;
  }
};

// Begins to copy a tile and its border, `channels` a pixel, a power of 2; 0 outside.
template <class T>
__device__ inline void load_patch(const T* __restrict__ from, unsigned channels, unsigned pitch,
                                  const NarrowTiles& tiles, const TilePlace& place,
                                  unsigned char* patch) {
  const unsigned vectors = channels / 8;
  const unsigned shift = log2_exact(vectors);
  const unsigned lines = tiles.tile_images * (tiles.tile_rows + 2);
  const unsigned line_vectors = (tiles.width + 2) << shift;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned line = warp; line < lines; line += narrow_warps) {
    unsigned row = line;
    const unsigned image = place.image + tiles.by_bordered_rows.split(row);
    row += place.row - 1;  // wraps above the image
    const bool inside = image < tiles.images && row < tiles.height;
    const std::size_t begin = inside ? std::size_t{image} * tiles.height + row : 0;
    const T* const source = from + begin * tiles.width * channels;
    unsigned char* const to = patch + line * (tiles.width + 2) * pitch;
    for (unsigned i = lane; i < line_vectors; i += 32) {
      const unsigned column = (i >> shift) - 1, vector = i & (vectors - 1);
      const bool is_pixel = inside && column < tiles.width;
      begin_copy(to + (i >> shift) * pitch + 16 * vector,
                 source + (is_pixel ? std::size_t{column} * channels : 0) + 8 * vector, !is_pixel);
    }
  }
}

// The pixel's channels in a tile of `pitch` bytes a pixel, from the tap on.
__device__ inline unsigned tap_offset(unsigned tap, bool adjoint, unsigned line, unsigned pitch) {
  const unsigned at = adjoint ? taps - 1 - tap : tap;
  return (at / 3 * line + at % 3) * pitch;
}

// Of d_y, the gradient of pooled values, what reaches the pixel of that corner: the channels whose
// maximum it was. `which` are the pool's 8 index bytes.
template <class T>
__device__ inline Packed<T, 8> of_corner(const Packed<T, 8>& d_y,
                                         const Packed<std::uint8_t, 8>& which, unsigned corner) {
  unsigned words[4], bytes[2];
  std::memcpy(words, &d_y.word, sizeof words);
  std::memcpy(bytes, &which.word, sizeof bytes);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned two = bytes[i / 2] >> (16 * (i % 2));
    words[i] &=
        ((two & 255U) == corner ? 0xffffU : 0U) | ((two >> 8 & 255U) == corner ? 0xffff0000U : 0U);
  }
  Packed<T, 8> kept;
  std::memcpy(&kept.word, words, sizeof words);
  return kept;
}

// load_patch() of the gradient that a 2x2 pool's adjoint would write, without writing it; the
// images of d_y have half the rows and columns. The patch is complete when all threads are here.
template <class T>
__device__ inline void load_unpooled(const T* __restrict__ d_y,
                                     const std::uint8_t* __restrict__ index, unsigned channels,
                                     unsigned pitch, const NarrowTiles& tiles,
                                     const TilePlace& place, unsigned char* patch) {
  const unsigned vectors = channels / 8;
  const unsigned shift = log2_exact(vectors);
  const unsigned lines = tiles.tile_images * (tiles.tile_rows + 2);
  const unsigned line_vectors = (tiles.width + 2) << shift;
  const unsigned height = tiles.height / 2, width = tiles.width / 2;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned line = warp; line < lines; line += narrow_warps) {
    unsigned row = line;
    const unsigned image = place.image + tiles.by_bordered_rows.split(row);
    row += place.row - 1;  // wraps above the image
    const bool inside = image < tiles.images && row / 2 < height;
    const std::size_t begin =
        inside ? (std::size_t{image} * height + row / 2) * width * channels : 0;
    unsigned char* const to = patch + line * (tiles.width + 2) * pitch;
#pragma unroll 4
    for (unsigned i = lane; i < line_vectors; i += 32) {
      const unsigned column = (i >> shift) - 1, vector = i & (vectors - 1);
      Packed<T, 8> here;
      if (inside && column / 2 < width) {
        const std::size_t at = begin + column / 2 * channels + 8 * vector;
        here = of_corner(read<8>(d_y + at), read<8>(index + at), row % 2 * 2 + column % 2);
      }
      write(reinterpret_cast<T*>(to + (i >> shift) * pitch + 16 * vector), here);
    }
  }
}

// Tiles of up to `pixels` pixels, or one row; in front of a pool of whole windows.
inline NarrowTiles narrow_tiles(const NarrowConv& conv, unsigned pixels) {
  const auto height = static_cast<unsigned>(conv.height), width = static_cast<unsigned>(conv.width);
  unsigned rows = std::clamp(std::min(pixels / width, patch_pixels / (width + 2) - 2), 1U, height);
  if (conv.pooled && rows < height) rows = std::max(2U, rows / 2 * 2);
  unsigned images = 1;
  if (rows == height)
    images = std::max(
        1U, std::min({pixels / (height * width), patch_pixels / ((height + 2) * (width + 2)),
                      static_cast<unsigned>(conv.images)}));
  const unsigned in_image = (height + rows - 1) / rows;
  return {.images = static_cast<unsigned>(conv.images),
          .height = height,
          .width = width,
          .tile_images = images,
          .tile_rows = rows,
          .pixels = images * rows * width,
          .count = (static_cast<unsigned>(conv.images) + images - 1) / images * in_image,
          .in_image = in_image,
          .by_width = Divider(width),
          .by_rows = Divider(rows),
          .by_bordered_rows = Divider(rows + 2)};
}

[[noreturn]] inline void refuse_narrow(const char* kernel, const NarrowConv& conv) {
  refuse_conv(kernel, {conv.images, conv.height, conv.width, conv.in}, conv.out);
}

// Sizes that the tiles' arithmetic and shared memory allow.
inline bool has_tiles(const NarrowConv& conv) {
  return conv.images > 0 && conv.height > 0 && conv.width > 0 && conv.width <= 128 &&
         conv.images * conv.height * conv.width < (std::int64_t{1} << 31) / 64;
}

// 8, 16, 32, 64 or 128.
inline bool is_narrow(std::int64_t channels) {
  return channels >= 8 && channels <= 128 &&
         std::has_single_bit(static_cast<std::uint64_t>(channels));
}

// Where partial sums of weights go: 4 numbers of d_w for each of `quads` or, with `stored` 8, those
// and 4 zeros; and `bias_quads` that follow, to d_bias.
struct WeightSums {
  void *d_w = nullptr, *d_bias = nullptr;
  unsigned quads = 0, bias_quads = 0, stored = 4;
};

// The sum of `rows` rows of partial sums, added in order. In narrow_grad.cuda.cu.
void add_weight_sums(const float* partials, unsigned rows, const WeightSums& into, DType dtype,
                     cudaStream_t stream);

template <class Run>
void dispatch_narrow(const char* name, DType dtype, Run run) {
  if (dtype == DType::f16) return run.template operator()<__half>();
  if (dtype == DType::bf16) return run.template operator()<__nv_bfloat16>();
  refuse_dtype(name, dtype);
}

}  // namespace warpstep::cuda

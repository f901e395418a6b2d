// 3x3 convolutions of few channels on tensor cores. A block computes a tile of pixels, whole rows
// of one image or several small images, at all outputs: it copies the tile with its border to
// shared memory, where each of the 9 taps reads it at another offset. Rows of the matrices that the
// tensor cores multiply are pixels, 16 bytes are 8 channels, so that no matrix of patches is ever
// written, and with 8 channels no number is padding but one tap of ten.
//
// Over 128x32x32x8 to 32 channels in f16 the forward kernel reads 2.1 MB and writes 8.4 MB, 2.7 us
// of an H200; its products would take 1 us. Measured figures are in bench/RECORDS.md.
#include "kernels/conv/narrow.cuda.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned narrow_threads = 256, narrow_warps = narrow_threads / 32;
constexpr unsigned narrow_pixels = 256;  // of a tile, at most
constexpr unsigned patch_pixels = 640;   // of a tile with its border, at most
constexpr unsigned taps = 9;

// Bytes between rows of `bytes` bytes in shared memory: an odd multiple of 16, so that 8 successive
// rows lie in different banks.
__host__ __device__ constexpr unsigned bank_pitch(unsigned bytes) {
  return bytes / 16 % 2 == 0 ? bytes + 16 : bytes;
}

// The tiles of images of height x width: `rows` rows of `images` images.
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

// Copies `vectors` x 8 channels, from channel `first` on, of a tile and its border; 0 outside.
template <class T>
__device__ inline void load_patch(const T* __restrict__ from, unsigned channels, unsigned first,
                                  unsigned vectors, unsigned pitch, const NarrowTiles& tiles,
                                  const TilePlace& place, unsigned char* patch) {
  const unsigned shift = 31U - static_cast<unsigned>(__clz(static_cast<int>(vectors)));
  const unsigned lines = tiles.tile_images * (tiles.tile_rows + 2);
  const unsigned line_vectors = (tiles.width + 2) << shift;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned line = warp; line < lines; line += narrow_warps) {
    unsigned row = line;
    const unsigned image = place.image + tiles.by_bordered_rows.split(row);
    row += place.row - 1;  // wraps above the image
    const bool inside = image < tiles.images && row < tiles.height;
    const std::size_t begin = inside ? std::size_t{image} * tiles.height + row : 0;
    const T* const source = from + begin * tiles.width * channels + first;
    unsigned char* const to = patch + line * (tiles.width + 2) * pitch;
#pragma unroll 4
    for (unsigned i = lane; i < line_vectors; i += 32) {
      const unsigned column = i >> shift, vector = i & (vectors - 1);
      Packed<T, 8> packed;
      if (inside && column - 1 < tiles.width)
        packed = read<8>(source + std::size_t{column - 1} * channels + 8 * vector);
      *reinterpret_cast<uint4*>(to + column * pitch + 16 * vector) = packed.word;
    }
  }
}

// The pixel's channels in a tile of `pitch` bytes a pixel, from the tap on.
__device__ inline unsigned tap_offset(unsigned tap, bool adjoint, unsigned line, unsigned pitch) {
  const unsigned at = adjoint ? taps - 1 - tap : tap;
  return (at / 3 * line + at % 3) * pitch;
}

// ---- the convolution and its adjoint to x, which is a convolution of y's channels to x's with the
// taps in reverse order

struct NarrowProduct {
  NarrowTiles tiles;
  unsigned in, out;  // channels that are read and written
  unsigned chunk;    // of `in`, in shared memory at once
  unsigned patch_pitch, weight_pitch, patch_bytes;
  bool relu;
};

// The weights' rows, which are w's outputs: those that are written, or for the adjoint those that
// are read; in a row, for each tap, the channels of the other kind.
template <class T, unsigned columns, bool paired, bool adjoint>
__device__ inline void load_weights(const T* __restrict__ w, const NarrowProduct& of,
                                    unsigned first_in, unsigned first_out, unsigned char* to) {
  const unsigned rows = adjoint ? of.chunk : columns, width = adjoint ? columns : of.chunk;
  const unsigned first_row = adjoint ? first_in : first_out;
  const unsigned first_column = adjoint ? first_out : first_in;
  const unsigned all = adjoint ? of.out : of.in;  // w's inputs
  constexpr unsigned stored_taps = paired ? taps + 1 : taps;
  const unsigned vectors = width / 8, count = rows * stored_taps * vectors;
  const unsigned shift = 31U - static_cast<unsigned>(__clz(static_cast<int>(vectors)));
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < count; i += narrow_threads) {
    const unsigned vector = i & (vectors - 1), line = i >> shift;
    const unsigned row = line / stored_taps, tap = line % stored_taps;
    Packed<T, 8> packed;  // 0 at the tenth tap
    if (!paired || tap < taps)
      packed = read<8>(w + (std::size_t{first_row + row} * taps + tap) * all + first_column +
                       8 * vector);
    *reinterpret_cast<uint4*>(to + row * of.weight_pitch + (tap * width + 8 * vector) * 2) =
        packed.word;
  }
}

// A block writes 8 `outs` channels of a tile; each warp 16 pixels, twice. `paired`: `in` is 8, and
// one product has two taps of 8 channels in place of 16 channels of one.
template <class T, int outs, bool paired, bool adjoint>
__global__ void __launch_bounds__(narrow_threads, outs < 8 ? 2 : 1)
    narrow_kernel(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
                  T* __restrict__ y, NarrowProduct of) {
  await_previous();
  constexpr unsigned columns = 8 * outs;
  constexpr int most = narrow_pixels / 16 / narrow_warps;  // of 16 pixels, a warp
  auto* const memory = dynamic_shared<unsigned char>();
  unsigned char* const weights = memory + of.patch_bytes;
  const NarrowTiles& tiles = of.tiles;
  const TilePlace place(tiles, blockIdx.x);
  const unsigned first_out = blockIdx.y * columns;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned line = tiles.width + 2;

  unsigned at[most];  // what the lane reads of the patch for tap 0
#pragma unroll
  for (int i = 0; i < most; ++i) {
    const unsigned p = (warp + static_cast<unsigned>(i) * narrow_warps) * 16 + lane % 16;
    at[i] = tiles.bordered(tiles.pixel(p < tiles.pixels ? p : tiles.pixels - 1)) * of.patch_pitch +
            (paired ? 0 : lane / 16 * 16);
  }
  // What it reads of the weights: rows of 8 outputs or, transposed, of 8 inputs.
  const unsigned low = lane % 8, middle = lane / 8 % 2, high = outs > 1 ? lane / 16 : 0;
  const unsigned width = adjoint ? columns : of.chunk;
  const unsigned row = adjoint ? (paired ? low : low + 8 * middle) : low + 8 * high;
  const unsigned in_row = adjoint ? 16 * high : paired ? 0 : 16 * middle;
  const unsigned char* const own =
      weights + row * of.weight_pitch + in_row + (paired ? middle * width * 2 : 0);

  float sum[most][outs][4] = {};
  const auto products = [&](unsigned in_patch, const unsigned char* b) {
    unsigned a[most][4];
#pragma unroll
    for (int i = 0; i < most; ++i) load_matrices(a[i], memory + at[i] + in_patch);
#pragma unroll
    for (int j = 0; j < outs; j += 2) {
      unsigned of_two[4];
      const unsigned next = static_cast<unsigned>(j) * 8;
      if constexpr (adjoint)
        load_transposed(of_two, b + next * 2);
      else
        load_matrices(of_two, b + next * of.weight_pitch);
#pragma unroll
      for (int i = 0; i < most; ++i) {
        multiply_add<T>(sum[i][j], a[i], of_two[0], of_two[1]);
        if constexpr (outs > 1) multiply_add<T>(sum[i][j + 1], a[i], of_two[2], of_two[3]);
      }
    }
  };

  for (unsigned first = 0; first < of.in; first += of.chunk) {
    if (first > 0) __syncthreads();  // readers of the chunk before are done
    load_patch(x, of.in, first, of.chunk / 8, of.patch_pitch, tiles, place, memory);
    load_weights<T, columns, paired, adjoint>(w, of, first, first_out, weights);
    __syncthreads();
    if constexpr (paired) {
#pragma unroll
      for (unsigned two = 0; two < taps; two += 2) {
        const unsigned tap = two + lane / 16;
        products(tap_offset(tap < taps ? tap : 0, adjoint, line, of.patch_pitch),
                 own + two * width * 2);
      }
    } else {
#pragma unroll
      for (unsigned tap = 0; tap < taps; ++tap) {
        const unsigned offset = tap_offset(tap, adjoint, line, of.patch_pitch);
#pragma unroll 2
        for (unsigned c = 0; c < of.chunk; c += 16)
          products(offset + c * 2, own + tap * width * 2 + (adjoint ? c * of.weight_pitch : c * 2));
      }
    }
  }

  // Through shared memory, so that a pixel's channels are written in whole words.
  __syncthreads();
  constexpr unsigned pitch = columns + 8;
  T* const staged = reinterpret_cast<T*>(memory);
#pragma unroll
  for (int i = 0; i < most; ++i) {
    const unsigned first = (warp + static_cast<unsigned>(i) * narrow_warps) * 16;
    if (first >= tiles.pixels) continue;
#pragma unroll
    for (int j = 0; j < outs; ++j) {
      const unsigned column = static_cast<unsigned>(j) * 8 + lane % 4 * 2;
      float added[2] = {};
      if (bias != nullptr) load<T, 2>(bias + first_out + column, added);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float two[2] = {sum[i][j][2 * half] + added[0], sum[i][j][2 * half + 1] + added[1]};
        if (of.relu)
#pragma unroll
          for (float& value : two) value = value > 0 || value != value ? value : 0;
        store(staged + (first + lane / 4 + 8 * static_cast<unsigned>(half)) * pitch + column, two);
      }
    }
    __syncwarp();
#pragma unroll
    for (unsigned v = lane; v < 16 * outs; v += 32) {
      const unsigned p = first + v / outs, vector = v % outs;
      if (p >= tiles.pixels) continue;
      const NarrowTiles::Pixel pixel = tiles.pixel(p);
      if (!place.has(tiles, pixel)) continue;
      write(y + place.index(tiles, pixel) * of.out + first_out + 8 * vector,
            read<8>(staged + p * pitch + 8 * vector));
    }
  }
}

// ---- the gradient of the weights

// A block adds the products of every gridDim.x-th tile: for `n` blocks of 16 outputs and `c` of 8
// inputs a warp, at all taps. Warps with the same of both share a tile's pixels.
struct NarrowSums {
  NarrowTiles tiles;
  unsigned in, out;
  unsigned in_jobs, jobs;        // warps' shares of the inputs, and of a block's outputs as well
  unsigned in_pitch, out_pitch;  // of a pixel in shared memory
  unsigned block_outs, patch_bytes;  // outputs of a block
};

template <class T, int n, int c>
__global__ void __launch_bounds__(narrow_threads, n* c > 1 ? 1 : 2)
    narrow_weight_kernel(const T* __restrict__ x, const T* __restrict__ d_y,
                         float* __restrict__ partials, NarrowSums of) {
  await_previous();
  auto* const memory = dynamic_shared<unsigned char>();
  unsigned char* const outs = memory + of.patch_bytes;
  const NarrowTiles& tiles = of.tiles;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned job = warp % of.jobs, part = warp / of.jobs, parts = narrow_warps / of.jobs;
  const unsigned first_in = job % of.in_jobs * 8 * c;    // of x
  const unsigned first_out = job / of.in_jobs * 16 * n;  // of the block's outputs
  const unsigned block_out = blockIdx.y * of.block_outs;
  const unsigned line = tiles.width + 2;
  const unsigned padded = (tiles.pixels + 15) / 16 * 16;

  float sum[n][taps][c][4] = {};
  for (unsigned tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const TilePlace place(tiles, tile);
    __syncthreads();  // readers of the tile before are done
    load_patch(x, of.in, 0, of.in / 8, of.in_pitch, tiles, place, memory);
    const unsigned vectors = of.block_outs / 8;
    const unsigned shift = 31U - static_cast<unsigned>(__clz(static_cast<int>(vectors)));
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < padded << shift; i += narrow_threads) {
      const unsigned p = i >> shift, vector = i & (vectors - 1);
      Packed<T, 8> packed;
      if (p < tiles.pixels) {
        const NarrowTiles::Pixel pixel = tiles.pixel(p);
        if (place.has(tiles, pixel))
          packed = read<8>(d_y + place.index(tiles, pixel) * of.out + block_out + 8 * vector);
      }
      *reinterpret_cast<uint4*>(outs + p * of.out_pitch + 16 * vector) = packed.word;
    }
    __syncthreads();
    for (unsigned k = part * 16; k < padded; k += parts * 16) {
      unsigned a[n][4];  // outputs by pixels
      const unsigned pixel_a = k + lane % 8 + lane / 16 * 8;
      const unsigned out_a = of.block_outs > 8 ? lane / 8 % 2 * 8 : 0;
#pragma unroll
      for (int i = 0; i < n; ++i)
        load_transposed(a[i], outs + pixel_a * of.out_pitch +
                                  (first_out + 16 * static_cast<unsigned>(i) + out_a) * 2);
      unsigned pixel_b = k + lane % 16;
      if (pixel_b >= tiles.pixels) pixel_b = tiles.pixels - 1;  // times 0
      const unsigned char* const b =
          memory + tiles.bordered(tiles.pixel(pixel_b)) * of.in_pitch + first_in * 2;
      if constexpr (c == 2) {
#pragma unroll
        for (unsigned tap = 0; tap < taps; ++tap) {
          unsigned two[4];
          load_transposed(two, b + tap_offset(tap, false, line, of.in_pitch) + lane / 16 * 16);
#pragma unroll
          for (int i = 0; i < n; ++i) {
            multiply_add<T>(sum[i][tap][0], a[i], two[0], two[1]);
            multiply_add<T>(sum[i][tap][c - 1], a[i], two[2], two[3]);
          }
        }
      } else {
#pragma unroll
        for (unsigned tap = 0; tap < taps; tap += 2) {
          unsigned two[4];
          const unsigned own = tap + lane / 16 < taps ? tap + lane / 16 : tap;
          load_transposed(two, b + tap_offset(own, false, line, of.in_pitch));
#pragma unroll
          for (int i = 0; i < n; ++i) {
            multiply_add<T>(sum[i][tap][0], a[i], two[0], two[1]);
            if (tap + 1 < taps) multiply_add<T>(sum[i][tap + 1][0], a[i], two[2], two[3]);
          }
        }
      }
    }
  }

  // The warps that shared the pixels, as a tree.
  constexpr unsigned numbers = n * taps * c * 4;
  const auto each = [&](auto body) {
#pragma unroll
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (unsigned tap = 0; tap < taps; ++tap)
#pragma unroll
        for (int j = 0; j < c; ++j)
#pragma unroll
          for (int q = 0; q < 4; ++q)
            body(((static_cast<unsigned>(i) * taps + tap) * c + static_cast<unsigned>(j)) * 4 +
                     static_cast<unsigned>(q),
                 sum[i][tap][j][q]);
  };
  float* const shared = reinterpret_cast<float*>(memory);
  for (unsigned half = parts / 2; half > 0; half /= 2) {
    __syncthreads();
    float* const slot = shared + ((part % half) * of.jobs + job) * numbers * 32 + lane;
    if (part >= half && part < 2 * half)
      each([&](unsigned at, float& value) { slot[at * 32] = value; });
    __syncthreads();
    if (part < half) each([&](unsigned at, float& value) { value += slot[at * 32]; });
  }
  if (part > 0) return;
  float* const to = partials + std::size_t{blockIdx.x} * of.out * taps * of.in;
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned out =
          block_out + first_out + 16 * static_cast<unsigned>(i) + 8 * half + lane / 4;
      if (out >= of.out) continue;
#pragma unroll
      for (unsigned tap = 0; tap < taps; ++tap)
#pragma unroll
        for (int j = 0; j < c; ++j) {
          const float two[2] = {sum[i][tap][j][2 * half], sum[i][tap][j][2 * half + 1]};
          store(to + (std::size_t{out} * taps + tap) * of.in + first_in +
                    8 * static_cast<unsigned>(j) + lane % 4 * 2,
                two);
        }
    }
}

constexpr unsigned sum_quads = 8;  // of a block: 128 bytes of a row

// d_w = the sum of the rows of partial sums.
template <class T>
__global__ void __launch_bounds__(column_threads)
    narrow_weight_sums(const float* __restrict__ partials, unsigned rows, unsigned quads,
                       T* __restrict__ d_w) {
  await_previous();
  const Place place{threadIdx.x % sum_quads, threadIdx.x / sum_quads, sum_quads,
                    column_threads / sum_quads};
  const unsigned quad = blockIdx.x * sum_quads + place.column;
  float sum[4] = {};
  if (quad < quads)
    add_rows<float>(partials + 4 * quad, std::size_t{4} * quads, 0, rows, place, sum);
  sum_column(sum, place);
  if (place.row == 0 && quad < quads) store(d_w + 4 * quad, sum);
}

// ---- on the host

bool is_power_of_two(std::int64_t number) {
  return std::has_single_bit(static_cast<std::uint64_t>(number));
}

NarrowTiles narrow_tiles(const NarrowConv& conv) {
  const auto height = static_cast<unsigned>(conv.height), width = static_cast<unsigned>(conv.width);
  const unsigned rows =
      std::clamp(std::min(narrow_pixels / width, patch_pixels / (width + 2) - 2), 1U, height);
  unsigned images = 1;
  if (rows == height)
    images = std::max(
        1U, std::min({narrow_pixels / (height * width), patch_pixels / ((height + 2) * (width + 2)),
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

// Sizes that the tiles' arithmetic and shared memory allow.
bool has_tiles(const NarrowConv& conv) {
  return conv.images > 0 && conv.height > 0 && conv.width > 0 && conv.width <= 128 &&
         conv.images * conv.height * conv.width < (std::int64_t{1} << 31) / 64;
}

bool is_narrow_in(std::int64_t channels) {
  return channels >= 8 && is_power_of_two(channels) && (channels <= 64 || channels == 128);
}
bool is_narrow_out(std::int64_t channels) {
  return channels == 8 || channels == 16 || channels == 32 || channels == 64 || channels == 128;
}

template <class Kernel>
void allow_shared(Kernel* kernel, std::size_t bytes, const char* name) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        name);
}

template <class T, int outs, bool paired, bool adjoint>
void launch_narrow(const NarrowConv& conv, const void* x, const void* w, const void* bias,
                   bool relu, void* y, cudaStream_t stream) {
  const char* const name = adjoint ? "narrow_data_grad" : "narrow_forward";
  constexpr unsigned columns = 8 * outs, stored_taps = paired ? taps + 1 : taps;
  NarrowProduct of{.tiles = narrow_tiles(conv),
                   .in = static_cast<unsigned>(adjoint ? conv.out : conv.in),
                   .out = static_cast<unsigned>(adjoint ? conv.in : conv.out),
                   .chunk = 0,
                   .patch_pitch = 0,
                   .weight_pitch = 0,
                   .patch_bytes = 0,
                   .relu = relu};
  of.chunk = std::min(of.in, 32U);
  of.patch_pitch = bank_pitch(of.chunk * 2);
  of.weight_pitch = bank_pitch(stored_taps * (adjoint ? columns : of.chunk) * 2);
  of.patch_bytes = of.tiles.bordered_pixels() * of.patch_pitch;
  const std::size_t weight_bytes = std::size_t{adjoint ? of.chunk : columns} * of.weight_pitch;
  const std::size_t staged_bytes =
      std::size_t{(of.tiles.pixels + 15) / 16 * 16} * (columns + 8) * sizeof(T);
  const std::size_t bytes = std::max(of.patch_bytes + weight_bytes, staged_bytes);
  const auto kernel = narrow_kernel<T, outs, paired, adjoint>;
  allow_shared(kernel, bytes, name);
  launch_next(name, kernel,
              {.grid = dim3(of.tiles.count, of.out / columns),
               .block = narrow_threads,
               .shared_bytes = bytes,
               .stream = stream},
              static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
              static_cast<T*>(y), of);
}

template <class T, bool adjoint>
void choose_narrow(const NarrowConv& conv, const void* x, const void* w, const void* bias,
                   bool relu, void* y, cudaStream_t stream) {
  const std::int64_t in = adjoint ? conv.out : conv.in, out = adjoint ? conv.in : conv.out;
  const auto of = [&]<int outs>() {
    if (in == 8) return launch_narrow<T, outs, true, adjoint>(conv, x, w, bias, relu, y, stream);
    launch_narrow<T, outs, false, adjoint>(conv, x, w, bias, relu, y, stream);
  };
  if (out == 8) return of.template operator()<1>();
  if (out == 16) return of.template operator()<2>();
  if (out == 32) return of.template operator()<4>();
  of.template operator()<8>();
}

template <class Run>
void dispatch_narrow(const char* name, DType dtype, Run run) {
  if (dtype == DType::f16) return run.template operator()<__half>();
  if (dtype == DType::bf16) return run.template operator()<__nv_bfloat16>();
  refuse_dtype(name, dtype);
}

// How the warps of a block share the outputs and inputs, and the blocks the tiles.
struct WeightShares {
  int n, c;  // see NarrowSums
  unsigned in_jobs, jobs, block_outs, out_blocks, blocks;
};

WeightShares weight_shares(const NarrowConv& conv, const NarrowTiles& tiles, int multiprocessors) {
  const auto in = static_cast<unsigned>(conv.in), out = static_cast<unsigned>(conv.out);
  WeightShares shares{};
  shares.c = in > 8 ? 2 : 1;
  shares.n = in == 8 && out > 16 ? 2 : 1;
  shares.in_jobs = in / 8 / static_cast<unsigned>(shares.c);
  const unsigned out_jobs = std::max(1U, out / 16 / static_cast<unsigned>(shares.n));
  shares.jobs = std::min(narrow_warps, shares.in_jobs * out_jobs);
  shares.block_outs =
      std::min(out, shares.jobs / shares.in_jobs * 16 * static_cast<unsigned>(shares.n));
  shares.out_blocks = out / shares.block_outs;
  shares.blocks = std::min(
      tiles.count,
      std::max(1U, 2 * static_cast<unsigned>(std::max(1, multiprocessors)) / shares.out_blocks));
  return shares;
}

template <class T, int n, int c>
void launch_weight_grad(const NarrowConv& conv, const NarrowTiles& tiles,
                        const WeightShares& shares, const void* x, const void* d_y, void* partials,
                        cudaStream_t stream) {
  NarrowSums of{.tiles = tiles,
                .in = static_cast<unsigned>(conv.in),
                .out = static_cast<unsigned>(conv.out),
                .in_jobs = shares.in_jobs,
                .jobs = shares.jobs,
                .in_pitch = 0,
                .out_pitch = 0,
                .block_outs = shares.block_outs,
                .patch_bytes = 0};
  of.in_pitch = bank_pitch(of.in * 2);
  of.out_pitch = bank_pitch(of.block_outs * 2);
  of.patch_bytes = tiles.bordered_pixels() * of.in_pitch;
  const std::size_t padded = (tiles.pixels + 15) / 16 * 16;
  const std::size_t tree = std::size_t{narrow_warps} / 2 * n * taps * c * 4 * 32 * sizeof(float);
  const std::size_t bytes =
      std::max(of.patch_bytes + padded * of.out_pitch, shares.jobs < narrow_warps ? tree : 0);
  const auto kernel = narrow_weight_kernel<T, n, c>;
  allow_shared(kernel, bytes, "narrow_weight_grad");
  launch_next("narrow_weight_grad", kernel,
              {.grid = dim3(shares.blocks, shares.out_blocks),
               .block = narrow_threads,
               .shared_bytes = bytes,
               .stream = stream},
              static_cast<const T*>(x), static_cast<const T*>(d_y), static_cast<float*>(partials),
              of);
}

}  // namespace

bool has_narrow_forward(const NarrowConv& conv) {
  return has_tiles(conv) && is_narrow_in(conv.in) && is_narrow_out(conv.out);
}

bool has_narrow_data_grad(const NarrowConv& conv) {
  return has_tiles(conv) && is_narrow_in(conv.out) && is_narrow_out(conv.in);
}

bool has_narrow_weight_grad(const NarrowConv& conv) {
  return has_tiles(conv) && conv.in <= 64 && is_narrow_in(conv.in) && is_narrow_out(conv.out);
}

void narrow_forward(const NarrowConv& conv, const void* x, const void* w, const void* bias,
                    bool relu, void* y, DType dtype, cudaStream_t stream) {
  dispatch_narrow("narrow_forward", dtype,
                  [&]<class T>() { choose_narrow<T, false>(conv, x, w, bias, relu, y, stream); });
}

void narrow_data_grad(const NarrowConv& conv, const void* d_y, const void* w, void* d_x,
                      DType dtype, cudaStream_t stream) {
  dispatch_narrow("narrow_data_grad", dtype, [&]<class T>() {
    choose_narrow<T, true>(conv, d_y, w, nullptr, false, d_x, stream);
  });
}

std::size_t narrow_weight_grad_workspace(const NarrowConv& conv, int multiprocessors) {
  const WeightShares shares = weight_shares(conv, narrow_tiles(conv), multiprocessors);
  return shares.blocks * idx(conv.out * std::int64_t{taps} * conv.in) * sizeof(float);
}

void narrow_weight_grad(const NarrowConv& conv, const void* x, const void* d_y, void* d_w,
                        void* workspace, int multiprocessors, DType dtype, cudaStream_t stream) {
  dispatch_narrow("narrow_weight_grad", dtype, [&]<class T>() {
    const NarrowTiles tiles = narrow_tiles(conv);
    const WeightShares shares = weight_shares(conv, tiles, multiprocessors);
    const auto sums = shares.c == 2   ? launch_weight_grad<T, 1, 2>
                      : shares.n == 2 ? launch_weight_grad<T, 2, 1>
                                      : launch_weight_grad<T, 1, 1>;
    sums(conv, tiles, shares, x, d_y, workspace, stream);
    const unsigned quads =
        index32("narrow_weight_grad", "weights", conv.out * std::int64_t{taps} * conv.in, 4);
    launch_next("narrow_weight_sums", narrow_weight_sums<T>,
                {.grid = blocks_for(quads, sum_quads), .block = column_threads, .stream = stream},
                static_cast<const float*>(workspace), shares.blocks, quads, static_cast<T*>(d_w));
  });
}

}  // namespace warpstep::cuda

// 3x3 convolutions of few channels on tensor cores, and their adjoints to x. A block computes a
// tile of pixels, whole rows of one image or several small images, at up to 64 outputs. Few weights
// are in shared memory at once; more arrive tap by tap while the tap before is multiplied. With 8
// channels one product has two taps, so that no number is padding but one tap of ten. A pool after
// the convolution takes its maxima from the tile; the adjoint reads through it.
//
// Over 128x32x32x8 to 32 channels in f16 the forward kernel reads 2.1 MB and writes 8.4 MB, with a
// pool 3.1: 2.7 and 1.3 us of an H200; the products would take 1 us. Measured figures are in
// bench/RECORDS.md.
#include <cmath>
#include <optional>

#include "kernels/conv/narrow.cuh"
#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {
namespace {

constexpr unsigned weight_ring = 3;  // taps whose weights are in shared memory, unless all are

struct NarrowProduct {
  NarrowTiles tiles;
  unsigned in, out;  // channels that are read and written
  unsigned patch_pitch, patch_bytes, weight_pitch, tap_bytes;
  bool all_taps;  // the weights of all taps are in shared memory
  bool relu, pool_relu;
  Divider by_pooled_width, by_pooled_rows;  // of a tile
  unsigned pooled_pixels;                   // of a tile
};

// Begins to copy the weights of `count` taps, from `first` on, for the block's `columns` outputs. A
// row is an output of w, with the channels that are read, or for the adjoint the other way round.
// Each thread copies the same vector of every row it visits; a row has at most 16 vectors.
template <class T, unsigned columns, bool adjoint>
__device__ inline void load_taps(const T* __restrict__ w, const NarrowProduct& of, unsigned first,
                                 unsigned count, unsigned char* to) {
  const unsigned rows = adjoint ? of.in : columns, vectors = (adjoint ? columns : of.in) / 8;
  const unsigned width = adjoint ? of.out : of.in;  // of a row of w
  const unsigned vector = threadIdx.x & (vectors - 1), by_vectors = log2_exact(vectors);
  const unsigned step = narrow_threads >> by_vectors;
  unsigned row = threadIdx.x >> by_vectors;
  const T* const from =
      w + (adjoint ? blockIdx.y * columns : blockIdx.y * columns * taps * width) + 8 * vector;
  to += 16 * vector;
  if (count == 1) {
    const T* at = from + (row * taps + first) * width;
    unsigned char* into = to + row * of.weight_pitch;
    for (; row < rows; row += step, at += step * taps * width, into += step * of.weight_pitch)
      begin_copy(into, at, false);
    return;
  }
  const unsigned by_rows = log2_exact(rows);
  for (; row < count << by_rows; row += step) {
    const unsigned nth = row >> by_rows, of_tap = row & (rows - 1);
    const bool is_tap = nth < taps;  // of pairs the tenth is 0
    begin_copy(to + nth * of.tap_bytes + of_tap * of.weight_pitch,
               from + (of_tap * taps + (is_tap ? nth : 0)) * width, !is_tap);
  }
}

// The maxima of a tile's windows, 8 channels a thread; `staged` are rows of `pitch` numbers.
template <class T, unsigned columns>
__device__ inline void pool_tile(const T* staged, unsigned pitch, const NarrowProduct& of,
                                 const TilePlace& place, T* __restrict__ y,
                                 std::uint8_t* __restrict__ index) {
  constexpr unsigned vectors = columns / 8;
  const NarrowTiles& tiles = of.tiles;
  const unsigned height = tiles.height / 2, width = tiles.width / 2;
  for (unsigned i = threadIdx.x; i < of.pooled_pixels * vectors; i += narrow_threads) {
    const unsigned vector = i % vectors;
    unsigned column = i / vectors;
    unsigned row = of.by_pooled_width.split(column);
    const unsigned image = of.by_pooled_rows.split(row);
    const unsigned out_row = place.row / 2 + row;
    if (place.image + image >= tiles.images || out_row >= height) continue;
    const unsigned corner = (image * tiles.tile_rows + 2 * row) * tiles.width + 2 * column;
    float best[8];
    unsigned bytes[2] = {};
#pragma unroll
    for (float& value : best) value = -INFINITY;
    unsigned at[8] = {};
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      float here[8];
      load(staged + (corner + k / 2 * tiles.width + k % 2) * pitch + 8 * vector, here);
#pragma unroll
      for (unsigned c = 0; c < 8; ++c)
        if (here[c] > best[c] || here[c] != here[c]) {
          best[c] = here[c];
          at[c] = k;
        }
    }
#pragma unroll
    for (unsigned c = 0; c < 8; ++c) {
      if (of.pool_relu && best[c] <= 0) {
        best[c] = 0;
        at[c] = no_maximum;
      }
      bytes[c / 4] |= at[c] << (8 * (c % 4));
    }
    const std::size_t to =
        ((std::size_t{place.image + image} * height + out_row) * width + column) * of.out +
        blockIdx.y * columns + 8 * vector;
    store(y + to, best);
    Packed<std::uint8_t, 8> packed;
    std::memcpy(&packed.word, bytes, sizeof bytes);
    write(index + to, packed);
  }
}

// Numbers where the mask is not 0 or below, as of a relu's adjoint.
template <class T>
__device__ inline Packed<T, 8> masked(const Packed<T, 8>& numbers, const Packed<T, 8>& mask) {
  float own[8], of[8];
  unpack(numbers, own);
  unpack(mask, of);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (of[i] <= 0) own[i] = 0;
  return pack<T>(own);
}

// A block's 8 warps compute 16 `m` pixels at 8 `n` channels each, `across` warps in a row.
// `paired`: `in` is 8, and one product has two taps of 8 channels in place of 16 channels of one.
// With a `mask`, of y's shape, the adjoint writes 0 where the mask is not above 0.
template <class T, int m, int n, unsigned across, bool paired, bool adjoint, bool pooled>
__global__ void __launch_bounds__(narrow_threads, 2)
    narrow_kernel(const T* __restrict__ x, const std::uint8_t* __restrict__ x_index,
                  const T* __restrict__ w, const T* __restrict__ bias, const T* __restrict__ mask,
                  T* __restrict__ y, std::uint8_t* __restrict__ y_index, NarrowProduct of) {
  await_previous();
  constexpr unsigned width = 8 * n, columns = width * across, down = narrow_warps / across;
  auto* const patch = dynamic_shared<unsigned char>();
  unsigned char* const weights = patch + of.patch_bytes;
  const NarrowTiles& tiles = of.tiles;
  const TilePlace place(tiles, blockIdx.x);
  const auto begin_tap = [&](unsigned tap) {
    load_taps<T, columns, adjoint>(w, of, tap, 1, weights + tap % weight_ring * of.tap_bytes);
  };
  if constexpr (adjoint && pooled)
    load_unpooled(x, x_index, of.in, of.patch_pitch, tiles, place, patch);
  else
    load_patch(x, of.in, of.patch_pitch, tiles, place, patch);
  load_taps<T, columns, adjoint>(w, of, 0, of.all_taps ? (paired ? taps + 1 : taps) : 1, weights);
  end_group();

  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned line = tiles.width + 2, first_column = warp % across * width;
  const auto first_pixel = [&](int i) {
    return (warp / across + static_cast<unsigned>(i) * down) * 16;
  };
  unsigned at[m];  // what the lane reads of the patch for tap 0
#pragma unroll
  for (int i = 0; i < m; ++i) {
    const unsigned p = first_pixel(i) + lane % 16;
    at[i] = tiles.bordered(tiles.pixel(p < tiles.pixels ? p : tiles.pixels - 1)) * of.patch_pitch +
            (paired ? 0 : lane / 16 * 16);
  }
  // What it reads of a tap's weights: rows of 8 outputs or, transposed, of 8 inputs.
  const unsigned low = lane % 8, middle = lane / 8 % 2, high = n > 1 ? lane / 16 : 0;
  const unsigned row = adjoint ? (paired ? low : low + 8 * middle) : first_column + low + 8 * high;
  const unsigned in_row = adjoint ? (first_column + 8 * high) * 2 : paired ? 0 : 16 * middle;
  const unsigned own = row * of.weight_pitch + in_row + (paired ? middle * of.tap_bytes : 0);

  float sum[m][n][4] = {};
  // `alone`: of a pair of taps only the first is one. Its weights are 0, but a pixel that is not
  // finite times 0 is NaN.
  const auto products = [&](unsigned offset, const unsigned char* b, bool alone = false) {
    unsigned a[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) {
      load_matrices(a[i], patch + at[i] + offset);
      if (alone) a[i][2] = a[i][3] = 0;
    }
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      unsigned of_two[4];
      const unsigned next = static_cast<unsigned>(j) * 8;
      if constexpr (adjoint)
        load_transposed(of_two, b + next * 2);
      else
        load_matrices(of_two, b + next * of.weight_pitch);
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add<T>(sum[i][j], a[i], of_two[0], of_two[1]);
        if constexpr (n > 1) multiply_add<T>(sum[i][j + 1], a[i], of_two[2], of_two[3]);
      }
    }
  };
  const auto products_of_tap = [&](unsigned tap, const unsigned char* b) {
    const unsigned offset = tap_offset(tap, adjoint, line, of.patch_pitch);
#pragma unroll 2
    for (unsigned c = 0; c < of.in; c += 16)
      products(offset + c * 2, b + own + c * (adjoint ? of.weight_pitch : 2));
  };
  if (of.all_taps) {
    await_groups<0>();
    __syncthreads();
    if constexpr (paired) {
#pragma unroll
      for (unsigned two = 0; two < taps; two += 2) {
        const unsigned tap = two + lane / 16;
        products(tap_offset(tap < taps ? tap : 0, adjoint, line, of.patch_pitch),
                 weights + two * of.tap_bytes + own, two + 1 == taps);
      }
    } else {
      for (unsigned tap = 0; tap < taps; ++tap) products_of_tap(tap, weights + tap * of.tap_bytes);
    }
  } else {
    begin_tap(1);
    end_group();
    for (unsigned tap = 0; tap < taps; ++tap) {
      await_groups<1>();
      __syncthreads();  // the tap is here, and nobody reads the one whose place the next takes
      if (tap + 2 < taps) begin_tap(tap + 2);
      end_group();
      products_of_tap(tap, weights + tap % weight_ring * of.tap_bytes);
    }
  }

  // Through shared memory, so that a pixel's channels are written in whole words.
  __syncthreads();
  constexpr unsigned pitch = columns + 8;
  T* const staged = reinterpret_cast<T*>(patch);
#pragma unroll
  for (int i = 0; i < m; ++i) {
    const unsigned first = first_pixel(i);
    if (first >= tiles.pixels) continue;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const unsigned column = first_column + static_cast<unsigned>(j) * 8 + lane % 4 * 2;
      float added[2] = {};
      if (bias != nullptr) load<T, 2>(bias + blockIdx.y * columns + column, added);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float two[2] = {sum[i][j][2 * half] + added[0], sum[i][j][2 * half + 1] + added[1]};
        if (of.relu)
#pragma unroll
          for (float& value : two) value = rectified(value);
        store(staged + (first + lane / 4 + 8 * static_cast<unsigned>(half)) * pitch + column, two);
      }
    }
    if constexpr (pooled && !adjoint) continue;
    __syncwarp();
#pragma unroll
    for (unsigned v = lane; v < 16 * n; v += 32) {
      const unsigned p = first + v / n, column = first_column + v % n * 8;
      if (p >= tiles.pixels) continue;
      const NarrowTiles::Pixel pixel = tiles.pixel(p);
      if (!place.has(tiles, pixel)) continue;
      const std::size_t to = place.index(tiles, pixel) * of.out + blockIdx.y * columns + column;
      Packed<T, 8> numbers = read<8>(staged + p * pitch + column);
      if constexpr (adjoint)
        if (mask != nullptr) numbers = masked(numbers, read<8>(mask + to));
      write(y + to, numbers);
    }
  }
  if constexpr (pooled && !adjoint) {
    __syncthreads();
    pool_tile<T, columns>(staged, pitch, of, place, y, y_index);
  }
}

// How a block's warps share a tile, and its memory.
struct ProductShares {
  int m, n;  // see narrow_kernel
  unsigned across, columns;
  NarrowProduct of;
  std::size_t shared_bytes;
  unsigned blocks() const { return of.tiles.count * (of.out / columns); }
};

std::optional<ProductShares> product_shares(const NarrowConv& conv, bool adjoint, int m) {
  constexpr std::size_t few_weights = 16 * 1024;  // bytes
  const unsigned in = static_cast<unsigned>(adjoint ? conv.out : conv.in);
  const unsigned out = static_cast<unsigned>(adjoint ? conv.in : conv.out);
  const unsigned across = out > 32 ? 2 : 1, columns = std::min(out, 64U);
  const unsigned pixels = 16 * static_cast<unsigned>(m) * narrow_warps / across;
  const NarrowTiles tiles = narrow_tiles(conv, pixels);
  const unsigned patch_pitch = bank_pitch(in * 2);
  const unsigned weight_pitch = bank_pitch((adjoint ? columns : in) * 2);
  const unsigned tap_bytes = (adjoint ? in : columns) * weight_pitch;
  const unsigned pooled_rows = tiles.tile_rows / 2, pooled_width = tiles.width / 2;
  const bool paired = in == 8, all_taps = paired || taps * tap_bytes <= few_weights;
  const ProductShares shares{
      .m = m,
      .n = static_cast<int>(columns / 8 / across),
      .across = across,
      .columns = columns,
      .of = {.tiles = tiles,
             .in = in,
             .out = out,
             .patch_pitch = patch_pitch,
             .patch_bytes = tiles.bordered_pixels() * patch_pitch,
             .weight_pitch = weight_pitch,
             .tap_bytes = tap_bytes,
             .all_taps = all_taps,
             .relu = false,
             .pool_relu = conv.pool_relu,
             .by_pooled_width = Divider(std::max(1U, pooled_width)),
             .by_pooled_rows = Divider(std::max(1U, pooled_rows)),
             .pooled_pixels = tiles.tile_images * pooled_rows * pooled_width},
      .shared_bytes =
          std::max(tiles.bordered_pixels() * patch_pitch + (paired     ? taps + 1
                                                            : all_taps ? taps
                                                                       : weight_ring) *
                                                               std::size_t{tap_bytes},
                   std::size_t{(tiles.pixels + 15) / 16 * 16} * (columns + 8) * sizeof(__half))};
  if (tiles.pixels > pixels || shares.shared_bytes > most_shared_bytes) return {};
  return shares;
}

struct NarrowCall {
  const void* x;
  const std::uint8_t* x_index;
  const void *w, *bias, *mask;
  void* y;
  std::uint8_t* y_index;
  cudaStream_t stream;
};

template <class T, int m, int n, unsigned across, bool paired, bool adjoint, bool pooled>
void launch_narrow(const NarrowCall& call, const ProductShares& shares) {
  const char* const name = adjoint ? "narrow_data_grad" : "narrow_forward";
  const auto kernel = narrow_kernel<T, m, n, across, paired, adjoint, pooled>;
  allow_shared(reinterpret_cast<const void*>(kernel), shares.shared_bytes, name);
  launch_next(name, kernel,
              {.grid = dim3(shares.of.tiles.count, shares.of.out / shares.columns),
               .block = narrow_threads,
               .shared_bytes = shares.shared_bytes,
               .stream = call.stream},
              static_cast<const T*>(call.x), call.x_index, static_cast<const T*>(call.w),
              static_cast<const T*>(call.bias), static_cast<const T*>(call.mask),
              static_cast<T*>(call.y), call.y_index, shares.of);
}

// Without a pool at most few_products, so that one of the two has 8 channels or both have 16; with
// one there are at least 16 outputs: the adjoint reads no fewer, and the convolution computes no
// fewer.
template <class T, bool adjoint, bool pooled>
void choose_narrow(const NarrowCall& call, const ProductShares& shares) {
  constexpr bool reads_8 = !(pooled && adjoint), writes_8 = !(pooled && !adjoint);
  if constexpr (reads_8)
    if (shares.of.in == 8) {
      if constexpr (writes_8)
        if (shares.n == 1) return launch_narrow<T, 2, 1, 1, true, adjoint, pooled>(call, shares);
      if (shares.n == 2) return launch_narrow<T, 2, 2, 1, true, adjoint, pooled>(call, shares);
      if constexpr (pooled)
        if (shares.across == 2)
          return launch_narrow<T, 2, 4, 2, true, adjoint, pooled>(call, shares);
      return launch_narrow<T, 2, 4, 1, true, adjoint, pooled>(call, shares);
    }
  if constexpr (writes_8)
    if (shares.n == 1) return launch_narrow<T, 2, 1, 1, false, adjoint, pooled>(call, shares);
  if constexpr (pooled) {
    if (shares.across == 2) {
      if (shares.m == 1) return launch_narrow<T, 1, 4, 2, false, adjoint, pooled>(call, shares);
      return launch_narrow<T, 2, 4, 2, false, adjoint, pooled>(call, shares);
    }
    if (shares.n == 4) {
      if (shares.m == 1) return launch_narrow<T, 1, 4, 1, false, adjoint, pooled>(call, shares);
      return launch_narrow<T, 2, 4, 1, false, adjoint, pooled>(call, shares);
    }
  }
  launch_narrow<T, 2, 2, 1, false, adjoint, pooled>(call, shares);
}

// Large tiles read fewer weights and borders; small ones are for where those would leave some
// multiprocessors with one block or none. Few outputs, or pairs of taps, have so little work a
// pixel that their tiles are always large.
std::optional<ProductShares> chosen_shares(const NarrowConv& conv, bool adjoint,
                                           int multiprocessors) {
  const std::int64_t in = adjoint ? conv.out : conv.in, out = adjoint ? conv.in : conv.out;
  if (in == 8 || out <= 16) return product_shares(conv, adjoint, 2);
  const std::optional<ProductShares> large = product_shares(conv, adjoint, 2);
  if (large && 2 * large->blocks() >= 3 * static_cast<unsigned>(multiprocessors)) return large;
  const std::optional<ProductShares> small = product_shares(conv, adjoint, 1);
  return small ? small : large;
}

template <bool adjoint>
void run_narrow(const NarrowConv& conv, const NarrowCall& call, bool relu, int multiprocessors,
                DType dtype) {
  if (!has_narrow_product(conv))
    refuse_narrow(adjoint ? "narrow_data_grad" : "narrow_forward", conv);
  ProductShares shares = *chosen_shares(conv, adjoint, multiprocessors);
  shares.of.relu = relu;
  dispatch_narrow("narrow", dtype, [&]<class T>() {
    if (conv.pooled) return choose_narrow<T, adjoint, true>(call, shares);
    choose_narrow<T, adjoint, false>(call, shares);
  });
}

}  // namespace

bool has_narrow_product(const NarrowConv& conv) {
  if (conv.pooled ? conv.out < 16 : conv.in * conv.out > few_products) return false;
  return has_tiles(conv) && is_narrow(conv.in) && is_narrow(conv.out) &&
         chosen_shares(conv, false, 1) && chosen_shares(conv, true, 1);
}

void narrow_forward(const NarrowConv& conv, const NarrowOperands& o, bool relu, int multiprocessors,
                    DType dtype, cudaStream_t stream) {
  run_narrow<false>(conv, NarrowCall{o.x, nullptr, o.w, o.bias, nullptr, o.y, o.y_index, stream},
                    relu, multiprocessors, dtype);
}

void narrow_data_grad(const NarrowConv& conv, const NarrowOperands& o, int multiprocessors,
                      DType dtype, cudaStream_t stream) {
  run_narrow<true>(conv,
                   NarrowCall{o.d_y, o.d_y_index, o.w, nullptr, o.mask, o.d_x, nullptr, stream},
                   false, multiprocessors, dtype);
}

}  // namespace warpstep::cuda

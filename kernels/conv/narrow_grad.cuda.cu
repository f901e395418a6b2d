// The gradient of the weights of 3x3 convolutions of few channels: products of pixels by pixels,
// where a block adds up tiles, each of its warps some of the outputs and inputs, and a second
// kernel adds the blocks' sums in order. The bias gradient is that of one more tap, which reads 1
// everywhere. After a pool a block spreads the gradient of its tile's maxima in shared memory.
#include "kernels/conv/narrow.cuh"
#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {
namespace {

// A block adds the products of every gridDim.x-th tile: for `n` blocks of 16 outputs and `c` of 8
// inputs a warp, at all taps. Warps with the same of both share a tile's pixels.
struct NarrowSums {
  NarrowTiles tiles;
  unsigned in, out;
  unsigned in_jobs, jobs;        // warps' shares of the inputs, and of a block's outputs as well
  unsigned in_pitch, out_pitch;  // of a pixel in shared memory
  unsigned block_outs;           // outputs of a block
  unsigned patch_bytes, tile_bytes;
  bool bias;
  // With a pool: a tile in memory has pooled pixels and, from `index_at` on, their index; pixels
  // are spread to `spread_at`.
  bool pooled;
  unsigned index_at, spread_at, pooled_pixels;  // of a tile
  Divider by_pooled_width, by_pooled_rows;
};

// Two numbers 1.
template <class T>
inline constexpr unsigned two_ones = 0x3c003c00;
template <>
inline constexpr unsigned two_ones<__nv_bfloat16> = 0x3f803f80;

// Begins to copy a tile's pooled gradients and their index; 0 outside.
template <class T>
__device__ inline void load_pooled(const T* __restrict__ d_y,
                                   const std::uint8_t* __restrict__ index, const NarrowSums& of,
                                   unsigned block_out, const TilePlace& place, unsigned char* to) {
  const NarrowTiles& tiles = of.tiles;
  const unsigned height = tiles.height / 2, width = tiles.width / 2;
  // Where the block's outputs of a pooled pixel begin, and whether the image has that pixel.
  const auto index_of = [&](unsigned p, bool& is_pixel) {
    unsigned column = p;
    unsigned row = of.by_pooled_width.split(column);
    const unsigned image = place.image + of.by_pooled_rows.split(row);
    row += place.row / 2;
    is_pixel = image < tiles.images && row < height;
    return is_pixel ? ((std::size_t{image} * height + row) * width + column) * of.out + block_out
                    : 0;
  };
  const unsigned by_vectors = log2_exact(of.block_outs / 8);
  const unsigned vectors = 1U << by_vectors, halves = vectors / 2;  // of a pixel, of its index
  bool is_pixel = false;
  for (unsigned i = threadIdx.x; i < of.pooled_pixels << by_vectors; i += narrow_threads) {
    const std::size_t from = index_of(i >> by_vectors, is_pixel);
    begin_copy(to + i * 16, d_y + from + 8 * (i & (vectors - 1)), !is_pixel);
  }
  for (unsigned i = threadIdx.x; i < of.pooled_pixels << by_vectors >> 1; i += narrow_threads) {
    const std::size_t from = index_of(i >> (by_vectors - 1), is_pixel);
    begin_copy(to + of.index_at + i * 16, index + from + 16 * (i & (halves - 1)), !is_pixel);
  }
}

// Spreads them over the tile's pixels.
template <class T>
__device__ inline void spread_pooled(const unsigned char* tile, const NarrowSums& of,
                                     unsigned padded, unsigned char* to) {
  const NarrowTiles& tiles = of.tiles;
  const unsigned vectors = of.block_outs / 8;
  const unsigned height = of.by_pooled_rows.divisor(), width = of.by_pooled_width.divisor();
  for (unsigned i = threadIdx.x; i < padded * vectors; i += narrow_threads) {
    const unsigned p = i / vectors, vector = i % vectors;
    const NarrowTiles::Pixel at = tiles.pixel(p);
    Packed<T, 8> here;
    if (p < tiles.pixels && at.row / 2 < height && at.column / 2 < width) {
      const unsigned from = ((at.image * height + at.row / 2) * width + at.column / 2) * vectors;
      here = of_corner(
          read<8>(reinterpret_cast<const T*>(tile + (from + vector) * 16)),
          read<8>(reinterpret_cast<const std::uint8_t*>(tile + of.index_at + (from + vector) * 8)),
          at.row % 2 * 2 + at.column % 2);
    }
    write(reinterpret_cast<T*>(to + p * of.out_pitch + 16 * vector), here);
  }
}

template <class T, int n, int c>
__global__ void __launch_bounds__(narrow_threads, 2)
    narrow_weight_kernel(const T* __restrict__ x, const T* __restrict__ d_y,
                         const std::uint8_t* __restrict__ index, float* __restrict__ partials,
                         NarrowSums of) {
  await_previous();
  auto* const memory = dynamic_shared<unsigned char>();
  const NarrowTiles& tiles = of.tiles;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned job = warp % of.jobs, part = warp / of.jobs, parts = narrow_warps / of.jobs;
  const unsigned first_in = job % of.in_jobs * 8 * c;    // of x
  const unsigned first_out = job / of.in_jobs * 16 * n;  // of the block's outputs
  const unsigned block_out = blockIdx.y * of.block_outs;
  const unsigned line = tiles.width + 2;
  const unsigned padded = (tiles.pixels + 15) / 16 * 16;
  const auto load_tile = [&](unsigned tile, unsigned char* to) {
    const TilePlace place(tiles, tile);
    load_patch(x, of.in, of.in_pitch, tiles, place, to);
    if (of.pooled) return load_pooled(d_y, index, of, block_out, place, to + of.patch_bytes);
    const unsigned vectors = of.block_outs / 8;
    const unsigned shift = log2_exact(vectors);
    for (unsigned i = threadIdx.x; i < padded << shift; i += narrow_threads) {
      const unsigned p = i >> shift, vector = i & (vectors - 1);
      const NarrowTiles::Pixel pixel = tiles.pixel(p);
      const bool is_pixel = p < tiles.pixels && place.has(tiles, pixel);
      begin_copy(to + of.patch_bytes + p * of.out_pitch + 16 * vector,
                 d_y + (is_pixel ? place.index(tiles, pixel) * of.out : 0) + block_out + 8 * vector,
                 !is_pixel);
    }
  };

  load_tile(blockIdx.x, memory);
  end_group();
  float sum[n][taps][c][4] = {}, ones[n][4] = {};
  const bool adds_bias = of.bias && first_in == 0;
  unsigned buffer = 0;
  for (unsigned tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, buffer ^= 1) {
    if (tile + gridDim.x < tiles.count)
      load_tile(tile + gridDim.x, memory + (buffer ^ 1) * of.tile_bytes);
    end_group();
    await_groups<1>();
    __syncthreads();
    const unsigned char* const patch = memory + buffer * of.tile_bytes;
    const unsigned char* outs = patch + of.patch_bytes;
    if (of.pooled) {
      spread_pooled<T>(outs, of, padded, memory + of.spread_at);
      outs = memory + of.spread_at;
      __syncthreads();
    }
    for (unsigned k = part * 16; k < padded; k += parts * 16) {
      unsigned a[n][4];  // outputs by pixels
      const unsigned pixel_a = k + lane % 8 + lane / 16 * 8;
      const unsigned out_a = of.block_outs > 8 ? lane / 8 % 2 * 8 : 0;
#pragma unroll
      for (int i = 0; i < n; ++i)
        load_transposed(a[i], outs + pixel_a * of.out_pitch +
                                  (first_out + 16 * static_cast<unsigned>(i) + out_a) * 2);
      if (adds_bias)
#pragma unroll
        for (int i = 0; i < n; ++i) multiply_add<T>(ones[i], a[i], two_ones<T>, two_ones<T>);
      unsigned pixel_b = k + lane % 16;
      if (pixel_b >= tiles.pixels) pixel_b = tiles.pixels - 1;  // times 0
      const unsigned char* const b =
          patch + tiles.bordered(tiles.pixel(pixel_b)) * of.in_pitch + first_in * 2;
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
    __syncthreads();  // before the tile's memory is written again
  }

  // The warps that shared the pixels, as a tree.
  constexpr unsigned of_weights = n * taps * c * 4, numbers = of_weights + n * 4;
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
    if (!of.bias) return;
#pragma unroll
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (int q = 0; q < 4; ++q) body(of_weights + static_cast<unsigned>(4 * i + q), ones[i][q]);
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
  const unsigned weights = of.out * taps * of.in;
  float* const to = partials + std::size_t{blockIdx.x} * (weights + (of.bias ? of.out : 0));
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned out =
          block_out + first_out + 16 * static_cast<unsigned>(i) + 8 * half + lane / 4;
      if (out >= of.out) continue;
      if (adds_bias && lane % 4 == 0) to[weights + out] = ones[i][2 * half];
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

constexpr unsigned rows_per_sum = 8;  // of partial sums, by one thread

// The sum of the rows of partial sums, `across` quads of them by a block.
template <class T>
__global__ void __launch_bounds__(column_threads)
    narrow_weight_sums(const float* __restrict__ partials, unsigned rows, WeightSums into,
                       unsigned across) {
  await_previous();
  const Place place{threadIdx.x & (across - 1), threadIdx.x / across, across,
                    column_threads / across};
  const unsigned quad = blockIdx.x * across + place.column;
  const unsigned quads = into.quads + into.bias_quads;
  float sum[4] = {};
  if (quad < quads)
    add_rows<float>(partials + 4 * quad, std::size_t{4} * quads, 0, rows, place, sum);
  sum_column(sum, place);
  if (place.row > 0 || quad >= quads) return;
  if (quad >= into.quads) return store(static_cast<T*>(into.d_bias) + 4 * (quad - into.quads), sum);
  T* const to = static_cast<T*>(into.d_w) + into.stored * quad;
  store(to, sum);
  constexpr float zeros[4] = {};
  if (into.stored > 4) store(to + 4, zeros);
}

// How the tiles are shared by blocks, and a tile's work by warps.
struct WeightShares {
  NarrowTiles tiles;
  int n, c;  // see NarrowSums
  unsigned in_jobs, jobs, block_outs, out_blocks, blocks;
  unsigned in_pitch, out_pitch, patch_bytes, tile_bytes;
  unsigned pooled_pixels, index_at, spread_at;
  std::size_t shared_bytes;
};

WeightShares weight_shares(const NarrowConv& conv, int multiprocessors, unsigned pixels) {
  const auto in = static_cast<unsigned>(conv.in), out = static_cast<unsigned>(conv.out);
  WeightShares shares{.tiles = narrow_tiles(conv, pixels),
                      .n = in == 8 && out > 16 ? 2 : 1,
                      .c = in > 8 ? 2 : 1,
                      .in_pitch = bank_pitch(in * 2)};
  const auto n = static_cast<unsigned>(shares.n), c = static_cast<unsigned>(shares.c);
  shares.in_jobs = in / 8 / c;
  shares.jobs = std::min(narrow_warps, shares.in_jobs * std::max(1U, out / 16 / n));
  shares.block_outs = std::min(out, shares.jobs / shares.in_jobs * 16 * n);
  shares.out_blocks = out / shares.block_outs;
  const unsigned wanted = 2 * static_cast<unsigned>(multiprocessors) / shares.out_blocks;
  shares.blocks = std::clamp(wanted, 1U, shares.tiles.count);
  shares.out_pitch = bank_pitch(shares.block_outs * 2);
  shares.patch_bytes = shares.tiles.bordered_pixels() * shares.in_pitch;
  const unsigned spread_bytes = (shares.tiles.pixels + 15) / 16 * 16 * shares.out_pitch;
  shares.pooled_pixels =
      shares.tiles.tile_images * (shares.tiles.tile_rows / 2) * (shares.tiles.width / 2);
  shares.index_at = shares.pooled_pixels * shares.block_outs * 2;
  shares.tile_bytes = shares.patch_bytes +
                      (conv.pooled ? shares.pooled_pixels * shares.block_outs * 3 : spread_bytes);
  shares.spread_at = (shares.tiles.count > shares.blocks ? 2 : 1) * shares.tile_bytes;
  const std::size_t tree =
      std::size_t{narrow_warps / 2 * n * (taps * c + 1) * 4 * 32} * sizeof(float);
  shares.shared_bytes = std::max<std::size_t>(shares.spread_at + (conv.pooled ? spread_bytes : 0),
                                              shares.jobs < narrow_warps ? tree : 0);
  return shares;
}

// Tiles of few weights are small, so that a block loads one while it multiplies another; of many
// weights the partial sums of more blocks cost more than that. All fit into shared memory.
WeightShares weight_shares(const NarrowConv& conv, int multiprocessors) {
  for (unsigned pixels = conv.in * conv.out <= 512 ? 128 : 256;; pixels /= 2) {
    const WeightShares shares = weight_shares(conv, multiprocessors, pixels);
    if (shares.shared_bytes <= most_shared_bytes || pixels <= 16) return shares;
  }
}

template <class T, int n, int c>
void launch_weight_grad(const NarrowConv& conv, const WeightShares& shares,
                        const NarrowOperands& operands, void* partials, cudaStream_t stream) {
  const NarrowSums of{
      .tiles = shares.tiles,
      .in = static_cast<unsigned>(conv.in),
      .out = static_cast<unsigned>(conv.out),
      .in_jobs = shares.in_jobs,
      .jobs = shares.jobs,
      .in_pitch = shares.in_pitch,
      .out_pitch = shares.out_pitch,
      .block_outs = shares.block_outs,
      .patch_bytes = shares.patch_bytes,
      .tile_bytes = shares.tile_bytes,
      .bias = operands.d_bias != nullptr,
      .pooled = conv.pooled,
      .index_at = shares.index_at,
      .spread_at = shares.spread_at,
      .pooled_pixels = shares.pooled_pixels,
      .by_pooled_width = Divider(std::max(1U, shares.tiles.width / 2)),
      .by_pooled_rows = Divider(std::max(1U, shares.tiles.tile_rows / 2)),
  };
  const auto kernel = narrow_weight_kernel<T, n, c>;
  allow_shared(reinterpret_cast<const void*>(kernel), shares.shared_bytes, "narrow_weight_grad");
  launch_next("narrow_weight_grad", kernel,
              {.grid = dim3(shares.blocks, shares.out_blocks),
               .block = narrow_threads,
               .shared_bytes = shares.shared_bytes,
               .stream = stream},
              static_cast<const T*>(operands.x), static_cast<const T*>(operands.d_y),
              operands.d_y_index, static_cast<float*>(partials), of);
}

std::int64_t weights_of(const NarrowConv& conv) {
  return conv.out * std::int64_t{taps} * conv.in;
}

}  // namespace

void add_weight_sums(const float* partials, unsigned rows, const WeightSums& into, DType dtype,
                     cudaStream_t stream) {
  const unsigned threads = std::bit_floor(std::clamp(rows / rows_per_sum, 1U, 32U));
  const unsigned across = column_threads / threads;  // at least 8 quads, 128 bytes of a row
  dispatch_narrow("narrow_weight_sums", dtype, [&]<class T>() {
    launch_next("narrow_weight_sums", narrow_weight_sums<T>,
                {.grid = blocks_for(into.quads + into.bias_quads, across),
                 .block = column_threads,
                 .stream = stream},
                partials, rows, into, across);
  });
}

bool has_narrow_weight_grad(const NarrowConv& conv) {
  const bool whole_words = !conv.pooled || conv.out >= 16;  // of the index
  return has_tiles(conv) && is_narrow(conv.in) && is_narrow(conv.out) && whole_words &&
         weight_shares(conv, 1).shared_bytes <= most_shared_bytes;
}

std::size_t narrow_weight_grad_workspace(const NarrowConv& conv, int multiprocessors) {
  const WeightShares shares = weight_shares(conv, multiprocessors);
  return shares.blocks * idx(weights_of(conv) + conv.out) * sizeof(float);
}

void narrow_weight_grad(const NarrowConv& conv, const NarrowOperands& operands, void* workspace,
                        int multiprocessors, DType dtype, cudaStream_t stream) {
  if (!has_narrow_weight_grad(conv)) refuse_narrow("narrow_weight_grad", conv);
  const WeightShares shares = weight_shares(conv, multiprocessors);
  dispatch_narrow("narrow_weight_grad", dtype, [&]<class T>() {
    const auto launch_products = shares.c == 2   ? launch_weight_grad<T, 1, 2>
                                 : shares.n == 2 ? launch_weight_grad<T, 2, 1>
                                                 : launch_weight_grad<T, 1, 1>;
    launch_products(conv, shares, operands, workspace, stream);
  });
  add_weight_sums(static_cast<const float*>(workspace), shares.blocks,
                  {.d_w = operands.d_w,
                   .d_bias = operands.d_bias,
                   .quads = index32("narrow_weight_grad", "weights", weights_of(conv), 4),
                   .bias_quads = operands.d_bias ? static_cast<unsigned>(conv.out) / 4 : 0},
                  dtype, stream);
}

}  // namespace warpstep::cuda

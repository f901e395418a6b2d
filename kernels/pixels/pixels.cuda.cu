// From the loader's bytes to the network's input, each row of the batch by its own plan. Bound by
// memory: 3 bytes in and 16 out per pixel for RGB to 8 channels of 16 bits; 256 images of 256x256
// are 320 MB, 75 us. A mask costs about 100 instructions per 8 pixels, which overlap with the
// memory traffic. Measured figures go to bench/RECORDS.md.
//
// A block computes a tile of 512 pixels of one row's image, up to 64 wide. It draws the mask for
// the tile and for one pixel around it once, into shared memory: 10x10 draws, one byte for 8 pixels
// each. Pixels are read directly from memory: neighbouring threads read neighbouring pixels,
// mirrored or not.
#include "kernels/pixels/pixels.cuda.h"

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/divider.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned pixel_threads = 256;
constexpr unsigned augmented_pixels = 512;
// The tile of 8 columns has the most draws, with those around it: 66 rows of 3.
constexpr unsigned most_draws = (augmented_pixels / 8 + 2) * 3;

struct Augmentation {
  unsigned source_height, source_width, height, width;  // of images, of y
  unsigned channels, vectors_per_pixel;
  unsigned columns, rows;           // of a tile; columns are 8, 16, 32 or 64,
  unsigned column_bits;             // 2 to the power of this
  unsigned draws_per_row;           // columns / 8 and one on each side
  Divider tiles, across, draw_row;  // by tiles per image, tiles per row of tiles, draws_per_row
  unsigned threshold;
  bool dilate, mix;
  float m[3][3], shift[3];
};

// The eight pixels of a draw as bits, lowest first.
__device__ inline unsigned drawn_pixels(const RowPlan& row, unsigned draw, unsigned threshold) {
  const uint4 words = random_words(draw, row.counter[1], row.counter[0],
                                   static_cast<unsigned>(Purpose::mask), row.key[0], row.key[1]);
  const unsigned all[4] = {words.x, words.y, words.z, words.w};
  unsigned bits = 0;
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    bits |= ((all[w] & 0xFFFF) < threshold ? 1U : 0U) << (2 * w);
    bits |= ((all[w] >> 16) < threshold ? 1U : 0U) << (2 * w + 1);
  }
  return bits;
}

// The place of a tile in its image.
struct Tile {
  unsigned top, left;
};

// Draw number `item` of those for the tile and around it; 0 outside of the image.
__device__ inline unsigned tile_draw(const Augmentation& a, const RowPlan& row, const Tile& tile,
                                     unsigned item) {
  unsigned column = item;
  const unsigned line = a.draw_row.split(column);
  const bool around =
      line == 0 || line == a.rows + 1 || column == 0 || column == a.draws_per_row - 1;
  if (around && !a.dilate) return 0;
  // Above and to the left of the image these wrap around to large numbers, outside of it.
  const unsigned y = tile.top + line - 1, byte = tile.left / 8 + column - 1;
  const unsigned image_bytes = (a.width + 7) / 8;
  if (y >= a.height || byte >= image_bytes) return 0;
  const unsigned bits = drawn_pixels(row, y * image_bytes + byte, a.threshold);
  const unsigned outside = byte * 8 + 8 > a.width ? byte * 8 + 8 - a.width : 0;
  return bits & (0xFFU >> outside);
}

__device__ inline bool is_covered(const Augmentation& a, const std::uint8_t* drawn, unsigned line,
                                  unsigned column) {
  const auto bit = [&](unsigned l, unsigned c) {
    return (drawn[(l + 1) * a.draws_per_row + c / 8] >> c % 8 & 1) != 0;
  };
  const unsigned c = column + 8;  // the tile begins after the draw on its left
  if (bit(line, c)) return true;
  return a.dilate && (bit(line - 1, c) || bit(line + 1, c) || bit(line, c - 1) || bit(line, c + 1));
}

// Whether output pixel (i, j) is the pair's.
__device__ inline bool is_boxed(const RowPlan& row, unsigned i, unsigned j) {
  const int line = static_cast<int>(i), column = static_cast<int>(j);
  return line >= row.top && line < row.bottom && column >= row.left && column < row.right;
}

// The values of output pixel (i, j) before mixing; 0 for channels that the image does not have.
__device__ inline void numbers_of(const Augmentation& a, const std::uint8_t* __restrict__ images,
                                  const RowPlan& row, unsigned i, unsigned j, bool covered,
                                  float (&y)[3]) {
  const int line = row.y + static_cast<int>(i);
  const int column = row.x + static_cast<int>(row.mirrored != 0 ? a.width - 1 - j : j);
  const bool inside = line >= 0 && line < static_cast<int>(a.source_height) && column >= 0 &&
                      column < static_cast<int>(a.source_width);
  const std::uint8_t* from = images;
  if (inside)
    from += ((std::size_t{row.source} * a.source_height + static_cast<unsigned>(line)) *
                 a.source_width +
             static_cast<unsigned>(column)) *
            a.channels;
  float v[3] = {};
#pragma unroll
  for (unsigned c = 0; c < 3; ++c)
    if (c < a.channels && !covered)
      v[c] = fmaf(row.gain, inside ? static_cast<float>(from[c]) : 0.0F, row.offset);
#pragma unroll
  for (unsigned o = 0; o < 3; ++o) {
    y[o] = o < a.channels ? a.shift[o] : 0;
#pragma unroll
    for (unsigned c = 0; c < 3; ++c)
      if (o < a.channels && c < a.channels) y[o] = fmaf(a.m[o][c], v[c], y[o]);
  }
}

template <class T>
__global__ void __launch_bounds__(pixel_threads)
    augment_kernel(const std::uint8_t* __restrict__ images, const RowPlan* __restrict__ rows,
                   T* __restrict__ y, Augmentation a) {
  constexpr int width = vector_width<T>;
  __shared__ std::uint8_t drawn[2][most_draws];
  unsigned across = blockIdx.x;
  const unsigned r = a.tiles.split(across);
  const unsigned down = a.across.split(across);
  const Tile tile{down * a.rows, across * a.columns};
  const RowPlan own = rows[r];
  const bool mixed = a.mix && own.weight < 1;
  const bool boxed = own.bottom > own.top && own.right > own.left;
  const unsigned pair = mixed ? own.pair : r;
  if (a.threshold > 0) {
    const unsigned draws = (a.rows + 2) * a.draws_per_row;
    for (unsigned item = threadIdx.x; item < (mixed ? 2 * draws : draws); item += pixel_threads) {
      const unsigned of = item < draws ? 0 : 1;
      drawn[of][item - of * draws] = static_cast<std::uint8_t>(
          tile_draw(a, rows[of == 0 ? r : pair], tile, item - of * draws));
    }
    __syncthreads();
  }
  const RowPlan other = rows[pair];
  for (unsigned p = threadIdx.x; p < augmented_pixels; p += pixel_threads) {
    const unsigned line = p >> a.column_bits, column = p & (a.columns - 1);
    const unsigned i = tile.top + line, j = tile.left + column;
    if (i >= a.height || j >= a.width) continue;
    float numbers[3], others[3];
    const bool masks = a.threshold > 0;
    numbers_of(a, images, own, i, j, masks && is_covered(a, drawn[0], line, column), numbers);
    if (mixed && (!boxed || is_boxed(own, i, j))) {
      numbers_of(a, images, other, i, j, masks && is_covered(a, drawn[1], line, column), others);
#pragma unroll
      for (int o = 0; o < 3; ++o)
        numbers[o] = boxed ? others[o] : fmaf(own.weight, numbers[o] - others[o], others[o]);
    }
    float vector[width] = {};
#pragma unroll
    for (int o = 0; o < 3; ++o) vector[o] = numbers[o];
    T* to = y + ((std::size_t{r} * a.height + i) * a.width + j) * a.vectors_per_pixel * width;
    store(to, vector);
    const float zeros[width] = {};
    for (unsigned v = 1; v < a.vectors_per_pixel; ++v) store(to + v * width, zeros);
  }
}

Augmentation checked_augmentation(const AugmentShape& shape, unsigned vectors_per_pixel) {
  const PixelPlan& plan = shape.plan;
  if (plan.channels < 1 || plan.channels > 3)
    refuse_size("augment", "channels", plan.channels, 3, 1);
  const unsigned height = index32("augment", "lines of y", shape.out.height);
  const unsigned width = index32("augment", "columns of y", shape.out.width);
  unsigned column_bits = 3;
  while (column_bits < 6 && 1U << column_bits < width) ++column_bits;
  const unsigned columns = 1U << column_bits;
  const unsigned lines = augmented_pixels / columns;
  const unsigned across = blocks_for(width, columns), down = blocks_for(height, lines);
  Augmentation a{.source_height = index32("augment", "lines of an image", shape.source.height),
                 .source_width = index32("augment", "columns of an image", shape.source.width),
                 .height = height,
                 .width = width,
                 .channels = static_cast<unsigned>(plan.channels),
                 .vectors_per_pixel = vectors_per_pixel,
                 .columns = columns,
                 .rows = lines,
                 .column_bits = column_bits,
                 .draws_per_row = columns / 8 + 2,
                 .tiles = Divider(across * down),
                 .across = Divider(across),
                 .draw_row = Divider(columns / 8 + 2),
                 .threshold = plan.mask_threshold,
                 .dilate = plan.dilate,
                 .mix = plan.mix,
                 .m = {},
                 .shift = {}};
  for (std::size_t o = 0; o < 3; ++o) {
    a.shift[o] = plan.shift[o];
    for (std::size_t c = 0; c < 3; ++c) a.m[o][c] = plan.m[o][c];
  }
  return a;
}

}  // namespace

void augment(const AugmentShape& shape, const std::uint8_t* images, const RowPlan* rows, void* y,
             DType dtype, cudaStream_t stream) {
  dispatch("augment", dtype, [&]<class T>() {
    if (shape.rows == 0 || shape.out.height == 0 || shape.out.width == 0) return;
    const Augmentation a = checked_augmentation(
        shape, index32("augment", "channels of y", shape.pitch, vector_width<T>));
    const std::int64_t tiles =
        std::int64_t{blocks_for(a.width, a.columns)} * blocks_for(a.height, a.rows);
    const unsigned blocks = index32("augment", "tiles", shape.rows * tiles);
    launch("augment", augment_kernel<T>, {.grid = blocks, .block = pixel_threads, .stream = stream},
           images, rows, static_cast<T*>(y), a);
  });
}

}  // namespace warpstep::cuda

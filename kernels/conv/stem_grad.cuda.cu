// The gradient of the stem's weights: products of the pixels of d_y by those that a row of the
// kernel reads, 4 channels of 4 taps at a time. A block adds up tiles at all weights, each warp a
// quarter of them, and a second kernel adds the blocks' sums in order. As in stem.cuda.cu, what a
// warp reads of a line of pixels is multiplied by all rows of d_y that meet it. Bound as that is:
// the same bytes and the same products.
#include "kernels/conv/stem.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned grad_outs = 64, grad_pitch = bank_pitch(grad_outs * 2);  // bytes of d_y's pixels
constexpr unsigned grad_pixels = stem_edge * stem_edge;
constexpr unsigned grad_tile_bytes = stem_patch_bytes + grad_pixels * grad_pitch;
constexpr std::size_t grad_shared_bytes = std::size_t{2} * grad_tile_bytes;
static_assert(grad_shared_bytes <= most_shared_bytes);

template <class T>
__device__ inline void load_grad_tile(const T* __restrict__ x, const T* __restrict__ d_y,
                                      const StemTiles& tiles, unsigned outs, unsigned tile,
                                      unsigned char* to) {
  const StemPlace place(tiles, tile);
  load_stem_patch(x, tiles, place, to);
  constexpr unsigned vectors = grad_outs / 8;
  for (unsigned i = threadIdx.x; i < grad_pixels * vectors; i += stem_threads) {
    const unsigned pixel = i / vectors, out = i % vectors * 8;
    const unsigned row = pixel / stem_edge, column = pixel % stem_edge;
    const bool inside =
        out < outs && place.row + row < tiles.out_height && place.column + column < tiles.out_width;
    begin_copy(to + stem_patch_bytes + pixel * grad_pitch + out * 2,
               d_y + (inside ? place.index(tiles, row, column) * outs + out : 0), !inside);
  }
}

// Partial sums: [block, out, 7, 7, 4] of f32.
template <class T>
__global__ void __launch_bounds__(stem_threads, 2)
    stem_weight_kernel(const T* __restrict__ x, const T* __restrict__ d_y,
                       float* __restrict__ partials, StemTiles tiles, unsigned outs) {
  await_previous();
  auto* const memory = dynamic_shared<unsigned char>();
  load_grad_tile(x, d_y, tiles, outs, blockIdx.x, memory);
  end_group();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned first_out = warp % 2 * 32, first_tap = warp / 2 * 4;  // of the warp's share
  const unsigned of_pixels = stem_lane_offset(lane) + first_tap * stem_pixel_bytes;
  const unsigned of_outs = stem_patch_bytes + (lane % 8 + lane / 16 * 8) * grad_pitch +
                           (first_out + lane / 8 % 2 * 8) * 2;

  float sum[2][stem_taps][2][4] = {};  // 16 outputs, a row of the kernel, 2 taps
  unsigned buffer = 0;
  for (unsigned tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, buffer ^= 1) {
    await_groups<0>();
    __syncthreads();  // the tile is there, and nobody reads the one before
    if (tile + gridDim.x < tiles.count)
      load_grad_tile(x, d_y, tiles, outs, tile + gridDim.x,
                     memory + (buffer ^ 1) * grad_tile_bytes);
    end_group();
    __syncwarp();  // lanes that copied less than others wait
    const unsigned rows = tiles.out_height - StemPlace(tiles, tile).row;  // from the tile's first
#pragma unroll 1
    for (unsigned first = 0; first < stem_edge && first < rows; first += strip_rows) {
      const unsigned char* const own = memory + buffer * grad_tile_bytes;
      unsigned a[strip_rows][2][4];  // outputs by pixels
#pragma unroll
      for (unsigned row = 0; row < strip_rows; ++row)
#pragma unroll
        for (unsigned i = 0; i < 2; ++i)
          load_transposed(a[row][i],
                          own + of_outs + (first + row) * stem_edge * grad_pitch + i * 32);
#pragma unroll
      for (unsigned line = 0; line < strip_lines; ++line) {
        unsigned b[4];  // pixels by channels of taps
        load_transposed(b, own + of_pixels + (2 * first + line) * stem_pitch);
#pragma unroll
        for (unsigned row = 0; row < strip_rows; ++row) {
          const unsigned of_kernel = kernel_row(line, row);
          if (of_kernel >= stem_taps) continue;
#pragma unroll
          for (unsigned i = 0; i < 2; ++i) {
            multiply_add<T>(sum[i][of_kernel][0], a[row][i], b[0], b[1]);
            multiply_add<T>(sum[i][of_kernel][1], a[row][i], b[2], b[3]);
          }
        }
      }
    }
  }

  constexpr unsigned of_out = stem_taps * stem_taps * stem_channels;
  float* const to = partials + std::size_t{blockIdx.x} * outs * of_out;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i)
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned out = first_out + 16 * i + 8 * half + lane / 4;
      if (out >= outs) continue;
#pragma unroll
      for (unsigned row = 0; row < stem_taps; ++row)
#pragma unroll
        for (unsigned two = 0; two < 2; ++two) {
          const unsigned tap = first_tap + 2 * two + lane % 4 / 2;
          if (tap >= stem_taps) continue;
          const float values[2] = {sum[i][row][two][2 * half], sum[i][row][two][2 * half + 1]};
          store(to + out * of_out + (row * stem_taps + tap) * stem_channels + lane % 2 * 2, values);
        }
    }
}

}  // namespace

std::size_t stem_weight_grad_workspace(const StemConv& conv, int multiprocessors) {
  return stem_blocks(stem_tiles(conv), multiprocessors) * idx(conv.out) * stem_taps * stem_taps *
         stem_channels * sizeof(float);
}

void stem_weight_grad(const StemConv& conv, const void* x, const void* d_y, void* d_w,
                      void* workspace, int multiprocessors, DType dtype, cudaStream_t stream) {
  if (!has_stem(conv)) refuse_stem("stem_weight_grad", conv);
  const StemTiles tiles = stem_tiles(conv);
  const unsigned blocks = stem_blocks(tiles, multiprocessors);
  dispatch_narrow("stem_weight_grad", dtype, [&]<class T>() {
    allow_shared(reinterpret_cast<const void*>(stem_weight_kernel<T>), grad_shared_bytes,
                 "stem_weight_grad");
    launch_next("stem_weight_grad", stem_weight_kernel<T>,
                {.grid = blocks,
                 .block = stem_threads,
                 .shared_bytes = grad_shared_bytes,
                 .stream = stream},
                static_cast<const T*>(x), static_cast<const T*>(d_y),
                static_cast<float*>(workspace), tiles, static_cast<unsigned>(conv.out));
  });
  add_weight_sums(static_cast<const float*>(workspace), blocks,
                  {.d_w = d_w,
                   .quads = static_cast<unsigned>(conv.out) * stem_taps * stem_taps,
                   .stored = stem_stored},
                  dtype, stream);
}

}  // namespace warpstep::cuda

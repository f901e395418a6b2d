// The stem's convolution on tensor cores: 7x7, stride 2, from 4 channels. A warp holds the weights
// of 32 outputs in registers and computes strips of 4x16 pixels: what it reads of a line of pixels
// is multiplied by all rows of the kernel that meet it, so that shared memory, which would bound
// the products of few channels, is read once for 4 rows of y.
//
// Over 256x224x224 in f16 it reads 205 MB (half of each pixel is padding) and writes 411 MB, 0.13
// ms of an H200; its products, 92 GFLOP with a third of padding, would take 0.15 ms at the 600
// TFLOP/s that mma.sync reaches there. It takes 0.25 (bench/RECORDS.md).
#include "kernels/conv/stem.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned warp_outs = 32, most_outs = 2 * warp_outs;

// A warp's weights, as the second operands of products of 16 numbers of a row of the kernel (4
// taps) by 8 outputs. The outputs are chosen such that a lane gets 8 adjacent ones of a pixel, 2
// from each of the 4 products: output 8 (j / 2) + j % 2 is in column j of the first.
struct StemWeights {
  unsigned words[stem_taps][2][4][2];

  template <class T>
  __device__ StemWeights(const T* __restrict__ w, unsigned first_out, unsigned outs) {
    const unsigned lane = threadIdx.x % 32, column = lane / 4;
#pragma unroll
    for (unsigned row = 0; row < stem_taps; ++row)
#pragma unroll
      for (unsigned i = 0; i < 16; ++i) {
        const unsigned half = i / 8, four = i / 2 % 4, word = i % 2;
        const unsigned out = first_out + column / 2 * 8 + four * 2 + column % 2;
        const unsigned tap = half * 4 + word * 2 + lane % 4 / 2;
        const bool is_weight = out < outs && tap < stem_taps;
        words[row][half][four][word] =
            is_weight ? read<2>(w + ((out * stem_taps + row) * stem_taps + tap) * stem_stored +
                                lane % 2 * 2)
                            .word
                      : 0;
      }
  }
};

template <class T>
__global__ void __launch_bounds__(stem_threads, 2)
    stem_product_kernel(const T* __restrict__ x, const T* __restrict__ w,
                        const T* __restrict__ bias, T* __restrict__ y, StemTiles tiles,
                        unsigned outs, bool relu) {
  await_previous();
  auto* const memory = dynamic_shared<unsigned char>();
  load_stem_patch(x, tiles, StemPlace(tiles, blockIdx.x), memory);
  end_group();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned first_out = warp % 2 * warp_outs;
  const StemWeights weights(w, first_out, outs);
  const unsigned out = first_out + lane % 4 * 8;  // the first of the lane's

  unsigned buffer = 0;
  for (unsigned tile = blockIdx.x; tile < tiles.count; tile += gridDim.x, buffer ^= 1) {
    await_groups<0>();
    __syncthreads();  // the tile is there, and nobody reads the one before
    if (tile + gridDim.x < tiles.count)
      load_stem_patch(x, tiles, StemPlace(tiles, tile + gridDim.x),
                      memory + (buffer ^ 1) * stem_patch_bytes);
    end_group();
    const StemPlace place(tiles, tile);
#pragma unroll 1
    for (unsigned first = warp / 2 * strip_rows; first < stem_edge; first += 2 * strip_rows) {
      if (place.row + first >= tiles.out_height) break;
      __syncwarp();  // lanes that copied or wrote less than others wait
      const unsigned char* const lines =
          memory + buffer * stem_patch_bytes + 2 * first * stem_pitch + stem_lane_offset(lane);
      float sum[strip_rows][4][4] = {};
#pragma unroll
      for (unsigned line = 0; line < strip_lines; ++line) {
        unsigned a[2][4];
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
          load_matrices(a[half], lines + line * stem_pitch + half * 32);
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
#pragma unroll
          for (unsigned row = 0; row < strip_rows; ++row) {
            const unsigned of_kernel = kernel_row(line, row);
            if (of_kernel >= stem_taps) continue;
#pragma unroll
            for (unsigned four = 0; four < 4; ++four) {
              const auto& b = weights.words[of_kernel][half][four];
              multiply_add<T>(sum[row][four], a[half], b[0], b[1]);
            }
          }
      }
      if (out >= outs) continue;
      float added[8] = {};
      if (bias != nullptr) load<T, 8>(bias + out, added);
#pragma unroll
      for (unsigned row = 0; row < strip_rows; ++row)
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
          const unsigned column = lane / 4 + 8 * half;
          if (place.row + first + row >= tiles.out_height ||
              place.column + column >= tiles.out_width)
            continue;
          float values[8];
#pragma unroll
          for (unsigned i = 0; i < 8; ++i) {
            values[i] = sum[row][i / 2][2 * half + i % 2] + added[i];
            if (relu) values[i] = rectified(values[i]);
          }
          store(y + place.index(tiles, first + row, column) * outs + out, values);
        }
    }
  }
}

}  // namespace

bool has_stem(const StemConv& conv) {
  constexpr std::int64_t most_pixels = std::int64_t{1} << 31;
  return conv.images > 0 && conv.height > 0 && conv.width > 0 && conv.out % 8 == 0 &&
         conv.out > warp_outs && conv.out <= most_outs &&
         conv.height * conv.width * stem_stored < most_pixels &&
         conv.images * conv.height * conv.width < most_pixels;
}

void stem_forward(const StemConv& conv, const void* x, const void* w, const void* bias, bool relu,
                  void* y, int multiprocessors, DType dtype, cudaStream_t stream) {
  if (!has_stem(conv)) refuse_stem("stem_forward", conv);
  dispatch_narrow("stem_forward", dtype, [&]<class T>() {
    const StemTiles tiles = stem_tiles(conv);
    launch_next("stem_forward", stem_product_kernel<T>,
                {.grid = stem_blocks(tiles, multiprocessors),
                 .block = stem_threads,
                 .shared_bytes = std::size_t{2} * stem_patch_bytes,
                 .stream = stream},
                static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
                static_cast<T*>(y), tiles, static_cast<unsigned>(conv.out), relu);
  });
}

}  // namespace warpstep::cuda

// 3x3 convolutions of few channels on tensor cores, and their adjoints to x. A block computes a
// tile of pixels, whole rows of one image or several small images, at all outputs. With 8 channels
// one product has two taps, so that no number is padding but one tap of ten.
//
// Over 128x32x32x8 to 32 channels in f16 the forward kernel reads 2.1 MB and writes 8.4 MB, 2.7 us
// of an H200, and its products would take 1 us; it takes 9. Measured figures are in
// bench/RECORDS.md.
#include "kernels/conv/narrow.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned product_pixels = 256;  // of a tile, at most

struct NarrowProduct {
  NarrowTiles tiles;
  unsigned in, out;  // channels that are read and written
  unsigned patch_pitch, weight_pitch, patch_bytes;
  bool relu;
};

// All weights. A row is an output of w: one that is written, or for the adjoint one that is read;
// in it, for each tap, the channels of the other kind.
template <class T, bool paired, bool adjoint>
__device__ inline void load_weights(const T* __restrict__ w, const NarrowProduct& of,
                                    unsigned char* to) {
  const unsigned rows = adjoint ? of.in : of.out, width = adjoint ? of.out : of.in;
  constexpr unsigned stored_taps = paired ? taps + 1 : taps;
  const unsigned vectors = width / 8, count = rows * stored_taps * vectors;
  const unsigned shift = 31U - static_cast<unsigned>(__clz(static_cast<int>(vectors)));
  for (unsigned i = threadIdx.x; i < count; i += narrow_threads) {
    const unsigned vector = i & (vectors - 1), line = i >> shift;
    const unsigned row = line / stored_taps, tap = line % stored_taps;
    const bool is_tap = !paired || tap < taps;  // the tenth is 0
    begin_copy(to + row * of.weight_pitch + (tap * width + 8 * vector) * 2,
               w + (row * taps + (is_tap ? tap : 0)) * width + 8 * vector, !is_tap);
  }
}

// A warp computes twice 16 pixels at all 8 `outs` channels. `paired`: `in` is 8, and one product
// has two taps of 8 channels in place of 16 channels of one.
template <class T, int outs, bool paired, bool adjoint>
__global__ void __launch_bounds__(narrow_threads, 2)
    narrow_kernel(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
                  T* __restrict__ y, NarrowProduct of) {
  await_previous();
  constexpr unsigned columns = 8 * outs;
  constexpr int both = product_pixels / 16 / narrow_warps;
  auto* const patch = dynamic_shared<unsigned char>();
  const NarrowTiles& tiles = of.tiles;
  const TilePlace place(tiles, blockIdx.x);
  load_patch(x, of.in, of.patch_pitch, tiles, place, patch);
  load_weights<T, paired, adjoint>(w, of, patch + of.patch_bytes);
  end_group();

  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned line = tiles.width + 2;
  const auto first_pixel = [&](int i) {
    return (warp + static_cast<unsigned>(i) * narrow_warps) * 16;
  };
  unsigned at[both];  // what the lane reads of the patch for tap 0
#pragma unroll
  for (int i = 0; i < both; ++i) {
    const unsigned p = first_pixel(i) + lane % 16;
    at[i] = tiles.bordered(tiles.pixel(p < tiles.pixels ? p : tiles.pixels - 1)) * of.patch_pitch +
            (paired ? 0 : lane / 16 * 16);
  }
  // What it reads of the weights: rows of 8 outputs or, transposed, of 8 inputs.
  const unsigned low = lane % 8, middle = lane / 8 % 2, high = outs > 1 ? lane / 16 : 0;
  const unsigned width = adjoint ? columns : of.in;
  const unsigned row = adjoint ? (paired ? low : low + 8 * middle) : low + 8 * high;
  const unsigned in_row = adjoint ? 16 * high : paired ? 0 : 16 * middle;
  const unsigned char* const weights =
      patch + of.patch_bytes + row * of.weight_pitch + in_row + (paired ? middle * width * 2 : 0);

  float sum[both][outs][4] = {};
  const auto products = [&](unsigned offset, const unsigned char* b) {
    unsigned a[both][4];
#pragma unroll
    for (int i = 0; i < both; ++i) load_matrices(a[i], patch + at[i] + offset);
#pragma unroll
    for (int j = 0; j < outs; j += 2) {
      unsigned of_two[4];
      const unsigned next = static_cast<unsigned>(j) * 8;
      if constexpr (adjoint)
        load_transposed(of_two, b + next * 2);
      else
        load_matrices(of_two, b + next * of.weight_pitch);
#pragma unroll
      for (int i = 0; i < both; ++i) {
        multiply_add<T>(sum[i][j], a[i], of_two[0], of_two[1]);
        if constexpr (outs > 1) multiply_add<T>(sum[i][j + 1], a[i], of_two[2], of_two[3]);
      }
    }
  };
  await_groups<0>();
  __syncthreads();
  if constexpr (paired) {
#pragma unroll
    for (unsigned two = 0; two < taps; two += 2) {
      const unsigned tap = two + lane / 16;
      products(tap_offset(tap < taps ? tap : 0, adjoint, line, of.patch_pitch),
               weights + two * width * 2);
    }
  } else {
#pragma unroll
    for (unsigned tap = 0; tap < taps; ++tap) {
      const unsigned offset = tap_offset(tap, adjoint, line, of.patch_pitch);
      for (unsigned c = 0; c < of.in; c += 16)
        products(offset + c * 2,
                 weights + tap * width * 2 + (adjoint ? c * of.weight_pitch : c * 2));
    }
  }

  // Through shared memory, so that a pixel's channels are written in whole words.
  __syncthreads();
  constexpr unsigned pitch = columns + 8;
  T* const staged = reinterpret_cast<T*>(patch);
#pragma unroll
  for (int i = 0; i < both; ++i) {
    const unsigned first = first_pixel(i);
    if (first >= tiles.pixels) continue;
#pragma unroll
    for (int j = 0; j < outs; ++j) {
      const unsigned column = static_cast<unsigned>(j) * 8 + lane % 4 * 2;
      float added[2] = {};
      if (bias != nullptr) load<T, 2>(bias + column, added);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float two[2] = {sum[i][j][2 * half] + added[0], sum[i][j][2 * half + 1] + added[1]};
        if (of.relu)
#pragma unroll
          for (float& value : two) value = value < 0.0F ? 0.0F : value;
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
      write(y + place.index(tiles, pixel) * columns + 8 * vector,
            read<8>(staged + p * pitch + 8 * vector));
    }
  }
}

// What a launch of narrow_kernel computes, but for the element type.
struct NarrowCall {
  NarrowConv conv;
  const void *x, *w, *bias;
  void* y;
  bool relu;
  cudaStream_t stream;
};

template <class T, int outs, bool paired, bool adjoint>
void launch_narrow(const NarrowCall& call) {
  const char* const name = adjoint ? "narrow_data_grad" : "narrow_forward";
  constexpr unsigned columns = 8 * outs, stored_taps = paired ? taps + 1 : taps;
  const unsigned in = static_cast<unsigned>(adjoint ? call.conv.out : call.conv.in);
  const NarrowTiles tiles = narrow_tiles(call.conv, product_pixels);
  const unsigned patch_pitch = bank_pitch(in * 2);
  const NarrowProduct of{.tiles = tiles,
                         .in = in,
                         .out = columns,
                         .patch_pitch = patch_pitch,
                         .weight_pitch = bank_pitch(stored_taps * (adjoint ? columns : in) * 2),
                         .patch_bytes = tiles.bordered_pixels() * patch_pitch,
                         .relu = call.relu};
  const std::size_t weight_bytes = std::size_t{adjoint ? in : columns} * of.weight_pitch;
  const std::size_t staged_bytes =
      std::size_t{(tiles.pixels + 15) / 16 * 16} * (columns + 8) * sizeof(T);
  const std::size_t bytes = std::max(of.patch_bytes + weight_bytes, staged_bytes);
  const auto kernel = narrow_kernel<T, outs, paired, adjoint>;
  allow_shared(kernel, bytes, name);
  launch_next(
      name, kernel,
      {.grid = tiles.count, .block = narrow_threads, .shared_bytes = bytes, .stream = call.stream},
      static_cast<const T*>(call.x), static_cast<const T*>(call.w),
      static_cast<const T*>(call.bias), static_cast<T*>(call.y), of);
}

// The sizes of has_narrow_product().
template <class T, bool adjoint>
void choose_narrow(const NarrowCall& call) {
  const std::int64_t in = adjoint ? call.conv.out : call.conv.in,
                     out = adjoint ? call.conv.in : call.conv.out;
  if (out == 32) return launch_narrow<T, 4, true, adjoint>(call);
  if (out == 16 && in == 16) return launch_narrow<T, 2, false, adjoint>(call);
  if (out == 16) return launch_narrow<T, 2, true, adjoint>(call);
  if (in == 8) return launch_narrow<T, 1, true, adjoint>(call);
  launch_narrow<T, 1, false, adjoint>(call);
}

}  // namespace

bool has_narrow_product(const NarrowConv& conv) {
  return has_tiles(conv) && is_narrow(conv.in) && is_narrow(conv.out) && conv.in * conv.out <= 256;
}

void narrow_forward(const NarrowConv& conv, const void* x, const void* w, const void* bias,
                    bool relu, void* y, DType dtype, cudaStream_t stream) {
  dispatch_narrow("narrow_forward", dtype, [&]<class T>() {
    choose_narrow<T, false>(NarrowCall{conv, x, w, bias, y, relu, stream});
  });
}

void narrow_data_grad(const NarrowConv& conv, const void* d_y, const void* w, void* d_x,
                      DType dtype, cudaStream_t stream) {
  dispatch_narrow("narrow_data_grad", dtype, [&]<class T>() {
    choose_narrow<T, true>(NarrowCall{conv, d_y, w, nullptr, d_x, false, stream});
  });
}

}  // namespace warpstep::cuda

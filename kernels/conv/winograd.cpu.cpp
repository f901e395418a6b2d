// Winograd's convolution F(4x4, 3x3) over rows of channels: 3x3 kernels. A tile of 4x4 outputs
// takes 36 multiply-adds per pair of channels instead of 144; the transforms of a tile cost about
// as much as 20 more channels. Bound by arithmetic. The rounding error is two to five times that of
// a direct convolution. Figures and errors: bench/RECORDS.md.
//
//   forward          z tile = A^T [ (G w G^T) * (B^T x B) ] A, position by position a product over
//                    the input channels. Blocks of tiles are independent: one thread each
//   data gradient    the same with the kernel turned and the channels' roles exchanged
//   weight gradient  d_w = G^T [ sum over tiles of (B^T x B) * (A d_z A^T) ] G
//
// The last tiles of an axis have three outputs where four would leave the image. Then they need no
// products in the row, or column, of positions for the point at infinity, as it only adds to the
// fourth output: 14 outputs are 4 + 4 + 3 + 3 and cost 22 points instead of 24.
//
// With stride 2, along each axis, the outer taps read the even pixels and the middle tap the odd
// ones. The former are F(4, 2), of 5 points; the latter multiply each output, 4. A tile takes 81
// multiply-adds instead of 144, with 36 matrices of weights, as the 4 share theirs. A short tile
// leaves out the fourth of these, too. It rounds no more than a direct convolution.
//
// Of an image of 2x2 pixels with padding, two taps reach each output along an axis:
//   z0 = w1 x0 + w2 x1 = w1 (x0 + x1) + (w2 - w1) x1
//   z1 = w0 x0 + w1 x1 = w1 (x0 + x1) + (w0 - w1) x0
// Three products along each axis instead of four: 9 multiply-adds instead of 16.
//
// But for 2x2 pixels, transformed weights are four times as large as the kernel. A few tiles would
// spend most of their time on writing and reading them: then a thread takes channels instead of
// tiles, and transforms the part of the weights that it needs next, or finishes its part of their
// gradient, in its cache.
#include "kernels/conv/conv.cpu.h"

#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/core/cpu_isa.h"
#include "kernels/conv/winograd.cpu.h"
#include "kernels/cpu/strided_tile.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// The loops over images, weights and biases stored as T. What they do: winograd.inc.
template <class T>
struct WinogradLoops {
  void (*prepare_weights)(const Winograd& w, const T* weight, std::int64_t begin, std::int64_t end,
                          float* u);
  void (*convolve_tiles)(const Winograd& w, const T* x, const unsigned char* in_index,
                         const T* zeros, const float* u, const T* bias, T* z,
                         unsigned char* out_index, const TileBlock& tiles, float* scratch);
  void (*transform_image)(const Winograd& w, const T* x, const unsigned char* index, const T* zeros,
                          const TileBlock& tiles, TileRange range, const Transforms& v);
  void (*convolve_channels)(const Winograd& w, const Transforms& v, const T* weight, const T* bias,
                            T* z, unsigned char* out_index, const TileBlock& tiles,
                            std::int64_t begin, std::int64_t end, float* scratch);
  void (*transform_tiles)(const Winograd& w, const T* x, const T* d_z, const unsigned char* index,
                          const T* zeros, const TileBlock& tiles, TileRange range,
                          const Transforms& v, const Transforms& q);
  void (*finish)(const Winograd& w, const float* d_u, std::int64_t begin, std::int64_t end,
                 T* d_weight);
  void (*correlate)(const Winograd& w, std::int64_t begin, std::int64_t end, const float* v,
                    const float* q, std::int64_t count, bool accumulate, float* d_u);
  void (*correlate_channels)(const Winograd& w, const TileBlock& tiles, const Transforms& v,
                             const Transforms& q, std::int64_t in_part, std::int64_t out_part,
                             T* d_weight, float* scratch);
};

namespace winograd {
#define WARPSTEP_SOURCE "kernels/conv/winograd.inc"
#include "engine/core/each_set.inc"
}  // namespace winograd

template <class T>
const WinogradLoops<T>& winograd_loops = of_isa(winograd::avx512::loops<T>,
                                                winograd::avx2::loops<T>,
                                                winograd::plain::loops<T>);
// Only these: the backend has no bf16 without AVX-512.
template <>
const WinogradLoops<Bf16>& winograd_loops<Bf16> = winograd::avx512::loops<Bf16>;

std::int64_t floats_per_tile(const Winograd& w) {
  return w.positions() * (w.v_pitch() + w.padded());
}

// Tiles per block: as many as have transforms that stay in a second-level cache, which is half as
// large on CPUs without AVX-512; where the weights do not stay there, three or four rows of product
// tiles, as each block reads all weights. A strided convolution's transforms are twice as large.
struct BlockLimits {
  std::int64_t floats, least, of_large_weights, strided;
};
constexpr BlockLimits large_cache{96 << 10, 28, 42, 14}, small_cache{48 << 10, 12, 24, 12};

std::int64_t tiles_of_block(const Winograd& w, const BlockLimits& limits) {
  constexpr std::int64_t weights_in_cache = 8192, most = 112;
  if (w.across() == 9) return limits.strided;
  if (w.in * w.out > weights_in_cache) return limits.of_large_weights;
  return std::clamp(limits.floats / floats_per_tile(w), limits.least, most);
}

// The blocks, as many for each thread.
std::int64_t blocks_of(const Winograd& w, const BlockLimits& limits, std::int64_t threads) {
  const std::int64_t tiles = tiles_of_block(w, limits);
  const std::int64_t blocks = (w.tiles() + tiles - 1) / tiles;
  return (blocks + threads - 1) / threads * threads;
}

std::string implementation(const Winograd& w) {
  return fmt::format("winograd {}, {}", w.form == WinogradForm::tiny ? "2x2" : "4x4",
                     name(cpu_isa()));
}

// Where a convolution's operands are: an index is -1 without a pool.
struct Places {
  int bias, in_index, out_index;
};

template <class T>
struct PlacedOperands {
  const T *x, *weight, *bias;
  const std::uint8_t* in_index;
  T* z;
  std::uint8_t* out_index;

  PlacedOperands(Places at, const Buffers& b)
      : x(as<T>(b.in[0])),
        weight(as<T>(b.in[1])),
        bias(at.bias < 0 ? nullptr : as<T>(b.in[idx(at.bias)])),
        in_index(at.in_index < 0 ? nullptr : as<std::uint8_t>(b.in[idx(at.in_index)])),
        z(as<T>(b.out[0])),
        out_index(at.out_index < 0 ? nullptr : as<std::uint8_t>(b.out[idx(at.out_index)])) {}
};

// u first, then a block for each thread.
template <class T>
std::unique_ptr<Kernel> convolution(const Winograd& w, Places at) {
  const std::int64_t u_floats = w.weight_floats();
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  const std::int64_t blocks =
      blocks_of(w, cpu_isa() == CpuIsa::avx512 ? large_cache : small_cache, threads);
  // The workspace is as large with any instruction set: so memory plans are the same.
  const std::int64_t most = std::max(TileBlock::most(w, blocks_of(w, large_cache, threads)),
                                     TileBlock::most(w, blocks_of(w, small_cache, threads)));
  const std::int64_t block_floats = most * floats_per_tile(w) + 2 * w.positions() * 16;
  const auto run = [=, zeros = std::vector<T>(idx(w.in))](const Buffers& b) {
    const WinogradLoops<T>& loops = winograd_loops<T>;
    const PlacedOperands<T> on(at, b);
    auto* u = as<float>(b.workspace);
    constexpr std::int64_t channels = 32;  // of one task
    SharedTasks tasks(blocks, threads);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
      for (std::int64_t o = 0; o < w.out; o += channels)
        loops.prepare_weights(w, on.weight, o, std::min(w.out, o + channels), u);
      float* scratch = u + u_floats + omp_get_thread_num() * block_floats;
      tasks.take([&](std::int64_t i) {
        const TileBlock tiles(w, i, blocks);
        if (tiles.count() > 0)
          loops.convolve_tiles(w, on.x, on.in_index, zeros.data(), u, on.bias, on.z, on.out_index,
                               tiles, scratch);
      });
    }
  };
  return host_kernel(implementation(w), run, idx(u_floats + threads * block_floats) * sizeof(float),
                     w.flops());
}

// Channels of one part of the transforms, where a thread takes channels; tiles of one task.
constexpr std::int64_t in_part = 64, out_part = 32, tiles_of_task = 8;

// `points` are those of all tiles. Measured on AVX-512 and AVX2 with 64 to 512 channels and 4 to
// 512 tiles: bench/RECORDS.md.
bool takes_channels(std::int64_t in, std::int64_t out, std::int64_t points, bool weight_gradient) {
  if (in % 16 != 0 || out % 16 != 0 || in < 64 || out < 64) return false;
  std::int64_t most = 64;  // tiles of stride 1
  if (in * out >= 256 * 256)
    most = weight_gradient ? 256 : 128;
  else if (in * out >= 128 * 128)
    most = weight_gradient ? 128 : 96;
  const std::int64_t tasks = (in + in_part - 1) / in_part * ((out + out_part - 1) / out_part);
  return points <= 36 * most && (!weight_gradient || tasks >= omp_get_max_threads());
}

// The transforms of all tiles first, then each thread's weights and products.
template <class T>
std::unique_ptr<Kernel> convolution_by_channels(const Winograd& w, Places at) {
  const int threads = omp_get_max_threads();
  // Few channels are not enough tasks for many threads: then each takes some of the tiles, too.
  const std::int64_t tasks = (w.out + out_part - 1) / out_part;
  const std::int64_t blocks =
      std::clamp<std::int64_t>(threads / tasks, 1, std::max<std::int64_t>(1, w.tiles() / 8));
  const auto transforms = Transforms::by_parts(in_part, w.tiles(), w.positions());
  const std::int64_t v_floats = transforms.floats(w.in);
  const std::int64_t most = TileBlock::most(w, blocks);
  const std::int64_t scratch_floats =
      w.matrices() * (in_part * out_part + 16) + w.positions() * (most * out_part + 16);
  const auto run = [=, zeros = std::vector<T>(idx(w.in))](const Buffers& b) {
    const WinogradLoops<T>& loops = winograd_loops<T>;
    const PlacedOperands<T> on(at, b);
    auto* workspace = as<float>(b.workspace);
    SharedTasks shared(tasks * blocks, threads);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t i = 0; i < blocks; ++i)
        for (std::int64_t t = 0; t < most; t += tiles_of_task) {
          const TileBlock tiles(w, i, blocks);
          const TileRange range{t, std::min(t + tiles_of_task, tiles.count())};
          loops.transform_image(w, on.x, on.in_index, zeros.data(), tiles, range,
                                transforms.from(workspace, tiles.before()));
        }
      float* scratch = workspace + v_floats + omp_get_thread_num() * scratch_floats;
      shared.take([&](std::int64_t task) {
        const std::int64_t o = task / blocks * out_part;
        const TileBlock tiles(w, task % blocks, blocks);
        loops.convolve_channels(w, transforms.from(workspace, tiles.before()), on.weight, on.bias,
                                on.z, on.out_index, tiles, o, std::min(w.out, o + out_part),
                                scratch);
      });
    }
  };
  return host_kernel(implementation(w), run,
                     idx(v_floats + threads * scratch_floats) * sizeof(float), w.flops());
}

template <class T>
std::unique_ptr<Kernel> convolution_of(const Winograd& w, Places at) {
  return takes_channels(w.in, w.out, w.points(), false) ? convolution_by_channels<T>(w, at)
                                                        : convolution<T>(w, at);
}

}  // namespace

namespace {

WinogradForm form_of(const Conv& op, const Shape& x) {
  if (op.stride == 2) return WinogradForm::strided;
  const bool tiny = x[1] == 2 && x[2] == 2 && op.padding == 1 && !op.pool;
  return tiny ? WinogradForm::tiny : WinogradForm::unit;
}

}  // namespace

// Winograd's multiply-adds per pair of channels are 36 for a tile, 81 with stride 2, 9 of 2x2
// pixels; transforming the weights costs as much as 72 tiles of 36, 8 where a thread takes
// channels, or 1 where they are only added. A direct convolution has one for each tap inside the
// image; AVX512_BF16 has twice as many in the same time, but packs more slowly than it multiplies.
// Measured on AVX-512 and AVX2, from 1x1 to 112x112 pixels and 16 to 512 channels:
// bench/RECORDS.md, docs/ABLATIONS.md.
bool suits_winograd(const Conv& op, const Shape& x, const Shape& z, DType dtype,
                    bool weight_gradient) {
  if (dtype == DType::bf16 && bf16_isa() == Bf16Isa::amx) return false;
  const WinogradForm form = form_of(op, x);
  const bool unit = form == WinogradForm::unit, strided = form == WinogradForm::strided;
  const TileAxis rows(z[1], form, op.pool.has_value()), columns(z[2], form, op.pool.has_value());
  const std::int64_t points = z[0] * rows.points(form) * columns.points(form);
  const bool few_tiles = takes_channels(x[3], op.out, points, weight_gradient);
  const std::int64_t weights_cost = form == WinogradForm::tiny ? 1 : few_tiles ? 8 : 72;  // tiles
  // Sums of a weight gradient that stay in no cache cost more.
  constexpr std::int64_t large = std::int64_t{1} << 16;
  const bool large_sums = weight_gradient && !few_tiles && x[3] * op.out >= large;
  const double saving = dtype == DType::f32 ? 1 : large_sums ? 2 : 1.5;
  const auto taps_inside = [&](std::int64_t in, std::int64_t out) {
    std::int64_t taps = 0;
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t k = 0; k < 3; ++k) {
        const std::int64_t i = o * op.stride + k;
        taps += i >= op.padding && i - op.padding < in;
      }
    return taps;
  };
  if (strided && (op.padding != 1 || op.pool)) return false;
  if (!unit && (dtype != DType::f32 || x[3] < 16 || op.out < 16)) return false;
  // Few products of few channels: while the cores' other hardware threads are busy, their
  // transforms take longer than a direct convolution.
  if (strided && few_tiles && x[3] * op.out < 128 * 128) return false;
  return op.kernel == 3 && op.stride <= 2 && op.dilation == 1 && op.groups == 1 &&
         op.padding <= 2 && x[3] >= narrowest_panel && op.out >= narrowest_panel &&
         saving * static_cast<double>(points + 36 * weights_cost) <
             static_cast<double>(z[0] * taps_inside(x[1], z[1]) * taps_inside(x[2], z[2]));
}

bool pools_in_winograd(const Conv& op) {
  return op.padding == 1 && op.pool->window == 2 && op.pool->stride == 2 && op.pool->padding == 0;
}

namespace {

// Of images of shape x that become z. A tiny image's tile has no padding.
Winograd between(const Shape& x, const Shape& z, std::int64_t padding, const Conv& op) {
  const WinogradForm form = form_of(op, x);
  return {.images = x[0],
          .height = x[1],
          .width = x[2],
          .in = x[3],
          .out_height = z[1],
          .out_width = z[2],
          .out = z[3],
          .padding = form == WinogradForm::tiny ? 0 : padding,
          .relu = false,
          .pool_relu = false,
          .turned = false,
          .pooled = op.pool.has_value(),
          .form = form};
}

}  // namespace

std::unique_ptr<Kernel> winograd_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype) {
  Winograd w = between(x, z, op.padding, op);
  w.relu = op.relu;
  w.pool_relu = op.pool && op.pool->relu;
  const Places at{.bias = op.bias ? 2 : -1, .in_index = -1, .out_index = op.pool ? 1 : -1};
  return with_stored(dtype, [&]<class T>() { return convolution_of<T>(w, at); });
}

// A convolution of d_z with the kernel turned.
std::unique_ptr<Kernel> winograd_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                           DType dtype) {
  Winograd w = between(z, x, 2 - op.padding, op);
  w.turned = true;
  if (op.stride == 2) {
    w.form = WinogradForm::strided_gradient;
    w.padding = 0;
  }
  const Places at{.bias = -1, .in_index = op.pool ? 2 : -1, .out_index = -1};
  return with_stored(dtype, [&]<class T>() { return convolution_of<T>(w, at); });
}

namespace {

template <class T>
struct WeightOperands {
  const T *x, *d_z;
  const std::uint8_t* index;  // of a pool, or null
  const T* zeros;             // as many as channels
  bool bias;
};

// The weight gradient's sums over some tiles, and the tiles' transforms, which come in chunks:
// where they are in the workspace.
struct TileSums {
  Winograd w;
  std::int64_t chunk;  // at most as many tiles

  std::int64_t v_stride() const { return chunk * w.v_pitch() + 16; }
  std::int64_t q_stride() const { return chunk * w.q_pitch() + 16; }
  // d_u, v and q of every position; q has one more for the sums of tiles; d_bias, and of one chunk.
  std::int64_t v() const { return w.weight_floats(); }
  std::int64_t q() const { return v() + w.positions() * v_stride(); }
  std::int64_t bias() const { return q() + (w.positions() + 1) * q_stride(); }
  std::int64_t floats() const { return (bias() + 2 * w.out + 15) / 16 * 16; }

  template <class T>
  void transform(const WeightOperands<T>& of, const TileBlock& tiles, TileRange range,
                 float* sums) const {
    winograd_loops<T>.transform_tiles(w, of.x, of.d_z, of.index, of.zeros, tiles, range,
                                      {sums + v(), v_stride(), w.v_pitch(), w.in, 0},
                                      {sums + q(), q_stride(), w.q_pitch(), w.out, 0});
  }
  // Adds a chunk to the sums of input channels [begin, end) of one of the weights' matrices.
  void add(int matrix, std::int64_t begin, std::int64_t end, const TileBlock& tiles, bool is_first,
           float* sums) const {
    w.for_positions_of(matrix, [&](int p) {
      const TileRange range = tiles.at(p);
      winograd_loops<float>.correlate(
          w, begin, end, sums + v() + p * v_stride() + range.begin * w.v_pitch(),
          sums + q() + p * q_stride() + range.begin * w.q_pitch(), range.end - range.begin,
          !is_first, sums + matrix * w.weight_stride());
      is_first = false;
    });
  }
  void add_bias(std::int64_t count, bool is_first, float* sums) const {
    const float* of_tiles = sums + q() + w.positions() * q_stride();
    float *total = sums + bias(), *of_chunk = total + w.out;
    std::fill_n(of_chunk, w.out, 0.0F);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t o = 0; o < w.out; ++o) of_chunk[o] += of_tiles[t * w.q_pitch() + o];
    for (std::int64_t o = 0; o < w.out; ++o) total[o] = (is_first ? 0 : total[o]) + of_chunk[o];
  }
};

// How the threads share the tiles. Where the sums are small, each thread has its own for its part
// of the batch, and they meet once; otherwise the threads share one chunk after the other,
// transform its tiles together and then divide the positions among themselves. Each chunk reads and
// writes all sums, which then stay in no cache: few chunks, of one size.
struct Sharing {
  TileSums sums;
  std::int64_t parts = 1;  // sums of their own
  std::int64_t chunks;     // of each part

  Sharing(const Winograd& w, std::int64_t threads) : sums{w, 0} {
    constexpr std::int64_t of_thread = 256 << 10, of_all = 8 << 20, least = 48, most = 256;
    std::int64_t limit = std::clamp(of_thread / floats_per_tile(w), least, most);
    if (threads * w.weight_floats() <= of_all)
      parts = std::min(threads, w.tiles());
    else
      limit = std::clamp(of_all / floats_per_tile(w), least, std::max(most, threads * limit));
    chunks = (w.tiles() + parts * limit - 1) / (parts * limit);
    sums.chunk = TileBlock::most(w, parts * chunks);
  }
};

template <class T>
void sum_apart(const Sharing& sharing, const WeightOperands<T>& operands, float* workspace) {
  const TileSums& s = sharing.sums;
#pragma omp parallel for schedule(static, 1)
  for (std::int64_t part = 0; part < sharing.parts; ++part) {
    float* sums = workspace + part * s.floats();
    for (std::int64_t i = 0; i < sharing.chunks; ++i) {
      const TileBlock tiles(s.w, part * sharing.chunks + i, sharing.parts * sharing.chunks);
      s.transform(operands, tiles, {0, tiles.count()}, sums);
      for (int matrix = 0; matrix < s.w.matrices(); ++matrix)
        s.add(matrix, 0, s.w.in, tiles, i == 0, sums);
      if (operands.bias) s.add_bias(tiles.count(), i == 0, sums);
    }
  }
}

template <class T>
void sum_together(const Sharing& sharing, const WeightOperands<T>& operands, float* sums) {
  constexpr std::int64_t channels = 32;  // of one task
  const TileSums& s = sharing.sums;
  const std::int64_t groups = (s.w.in + channels - 1) / channels;
  for (std::int64_t i = 0; i < sharing.chunks; ++i) {
    const TileBlock tiles(s.w, i, sharing.chunks);
    for_tasks((tiles.count() + tiles_of_task - 1) / tiles_of_task, true, [&](std::int64_t task) {
      const std::int64_t t = task * tiles_of_task;
      s.transform(operands, tiles, {t, std::min(t + tiles_of_task, tiles.count())}, sums);
    });
    for_tasks(s.w.matrices() * groups, true, [&](std::int64_t task) {
      const std::int64_t c = task % groups * channels;
      s.add(static_cast<int>(task / groups), c, std::min(s.w.in, c + channels), tiles, i == 0,
            sums);
    });
    if (operands.bias) s.add_bias(tiles.count(), i == 0, sums);
  }
}

// Adds the parts' sums of input channels [begin, end) to those of the first part, in order.
void add_parts(const Sharing& sharing, std::int64_t begin, std::int64_t end, float* workspace) {
  const TileSums& s = sharing.sums;
  for (std::int64_t part = 1; part < sharing.parts; ++part)
    for (std::int64_t p = 0; p < s.w.matrices(); ++p) {
      float* to = workspace + p * s.w.weight_stride();
      const float* from = to + part * s.floats();
      for (std::int64_t i = begin * s.w.padded(); i < end * s.w.padded(); ++i) to[i] += from[i];
    }
}

template <class T>
std::unique_ptr<Kernel> weight_grad(const Conv& op, const Winograd& w) {
  const Sharing sharing(w, omp_get_max_threads());
  const auto run = [=, bias = op.bias, pooled = op.pool.has_value(),
                    zeros = std::vector<T>(idx(std::max(w.in, w.out)))](const Buffers& b) {
    auto* workspace = as<float>(b.workspace);
    const WeightOperands<T> operands{as<T>(b.in[0]), as<T>(b.in[1]),
                                     pooled ? as<std::uint8_t>(b.in[2]) : nullptr, zeros.data(),
                                     bias};
    if (sharing.parts > 1)
      sum_apart(sharing, operands, workspace);
    else
      sum_together(sharing, operands, workspace);
    // The last range has at least as many channels as a vector.
    const std::int64_t ranges = std::max<std::int64_t>(1, w.in / 16);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < ranges; ++i) {
      const std::int64_t begin = i * 16, end = i + 1 < ranges ? begin + 16 : w.in;
      add_parts(sharing, begin, end, workspace);
      winograd_loops<T>.finish(w, workspace, begin, end, as<T>(b.out[0]));
    }
    if (!bias) return;
    for (std::int64_t o = 0; o < w.out; ++o) {
      float sum = 0;
      for (std::int64_t part = 0; part < sharing.parts; ++part)
        sum += workspace[part * sharing.sums.floats() + sharing.sums.bias() + o];
      as<T>(b.out[1])[o] = rounded_to<T>(sum);
    }
  };
  return host_kernel(implementation(w), run,
                     idx(sharing.parts * sharing.sums.floats()) * sizeof(float), w.flops());
}

// The transforms of all tiles first, then a part of the channels on both sides for each task.
template <class T>
std::unique_ptr<Kernel> weight_grad_by_channels(const Conv& op, const Winograd& w) {
  const int threads = omp_get_max_threads();
  const auto of_x = Transforms::by_parts(in_part, w.tiles(), w.positions());
  const auto of_z = Transforms::by_parts(out_part, w.tiles(), w.positions() + 1);
  const std::int64_t ins = (w.in + in_part - 1) / in_part;
  const std::int64_t outs = (w.out + out_part - 1) / out_part;
  const std::int64_t q_at = of_x.floats(w.in), scratch_at = q_at + of_z.floats(w.out);
  const std::int64_t scratch_floats = w.matrices() * (in_part * out_part + 16);
  const auto run = [=, bias = op.bias, pooled = op.pool.has_value(),
                    zeros = std::vector<T>(idx(std::max(w.in, w.out)))](const Buffers& b) {
    const WinogradLoops<T>& loops = winograd_loops<T>;
    const auto* index = pooled ? as<std::uint8_t>(b.in[2]) : nullptr;
    auto* workspace = as<float>(b.workspace);
    const Transforms v = of_x.from(workspace, 0), q = of_z.from(workspace + q_at, 0);
    const TileBlock tiles(w, 0, 1);
    SharedTasks tasks(ins * outs, threads);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
      for (std::int64_t t = 0; t < tiles.count(); t += tiles_of_task)
        loops.transform_tiles(w, as<T>(b.in[0]), as<T>(b.in[1]), index, zeros.data(), tiles,
                              {t, std::min(t + tiles_of_task, tiles.count())}, v, q);
      float* scratch = workspace + scratch_at + omp_get_thread_num() * scratch_floats;
      tasks.take([&](std::int64_t task) {
        loops.correlate_channels(w, tiles, v, q, task % ins, task / ins, as<T>(b.out[0]), scratch);
      });
    }
    if (!bias) return;
    for (std::int64_t o = 0; o < w.out; ++o) {
      const float* of_tile =
          q.at + o / out_part * q.part_stride + w.positions() * q.stride + o % out_part;
      float sum = 0;
      for (std::int64_t t = 0; t < w.tiles(); ++t) sum += of_tile[t * q.pitch];
      as<T>(b.out[1])[o] = rounded_to<T>(sum);
    }
  };
  return host_kernel(implementation(w), run,
                     idx(scratch_at + threads * scratch_floats) * sizeof(float), w.flops());
}

}  // namespace

std::unique_ptr<Kernel> winograd_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                             DType dtype) {
  const Winograd w = between(x, z, op.padding, op);
  return with_stored(dtype, [&]<class T>() {
    return takes_channels(w.in, w.out, w.points(), true) ? weight_grad_by_channels<T>(op, w)
                                                         : weight_grad<T>(op, w);
  });
}

}  // namespace warpstep::cpu

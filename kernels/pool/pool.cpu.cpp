// Pooling on the CPU, all bound by memory. Figures per layer: bench/RECORDS.md.
//   max       reads x (or d_x) and y once, with an index in bytes. Input and output may have
//             different layouts at no cost, so that layout changes need no Reorder
//   average   whole images are sums of columns in either layout; smaller windows go pixel by pixel

#include "kernels/pool/pool.cpu.h"

#include <cstring>

#include "engine/core/error.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

struct Pooling {
  MaxPool op;
  PixelView x, y, index;  // x and y are d_x and d_y in the adjoint
  std::int64_t images, groups;
};

// `lanes` channels as GNU vectors: the compiler splits them where the instruction set has only
// narrower registers.
template <int lanes>
struct Vector {
  typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
  typedef std::int32_t Ints __attribute__((vector_size(lanes * sizeof(std::int32_t))));
  typedef std::uint8_t Bytes __attribute__((vector_size(lanes)));
};

template <class V>
inline __attribute__((always_inline)) void load(V& vector, const void* from) {
  std::memcpy(&vector, from, sizeof vector);
}

// Computes one row of outputs of one channel group.
template <int lanes>
WARPSTEP_LOOP void pool_row(const Pooling& p, const float* x, float* y, std::uint8_t* index,
                            std::int64_t i) {
  using Floats = typename Vector<lanes>::Floats;
  using Ints = typename Vector<lanes>::Ints;
  using Bytes = typename Vector<lanes>::Bytes;
  const std::int64_t window = p.op.window, h0 = i * p.op.stride - p.op.padding;
  const std::int64_t h_begin = std::max<std::int64_t>(0, -h0),
                     h_end = std::min(window, p.x.height - h0);
  for (std::int64_t j = 0; j < p.y.width; ++j) {
    const std::int64_t w0 = j * p.op.stride - p.op.padding;
    const std::int64_t w_begin = std::max<std::int64_t>(0, -w0),
                       w_end = std::min(window, p.x.width - w0);
    Floats best = Floats{} - __builtin_inff(), in;
    // If no element is above -inf (all are NaN, for example): the first position in the image.
    Ints at = Ints{} + static_cast<std::int32_t>(h_begin * window + w_begin);
    for (std::int64_t kh = h_begin; kh < h_end; ++kh)
      for (std::int64_t kw = w_begin; kw < w_end; ++kw) {
        load(in, x + (h0 + kh) * p.x.row + (w0 + kw) * p.x.pixel);
        const Ints better = in > best;
        at = better ? Ints{} + static_cast<std::int32_t>(kh * window + kw) : at;
        best = better ? in : best;
      }
    if (p.op.relu) {
      const Ints positive = best > 0;
      at = positive ? at : Ints{} + std::int32_t{MaxPool::none};
      best = positive ? best : Floats{};
    }
    const Bytes narrow = __builtin_convertvector(at, Bytes);
    std::memcpy(y + j * p.y.pixel, &best, sizeof best);
    std::memcpy(index + j * p.index.pixel, &narrow, sizeof narrow);
  }
}

// The adjoint if windows do not overlap: every element of d_x belongs to at most one window and is
// written once.
template <int lanes>
WARPSTEP_LOOP void unpool_row(const Pooling& p, const float* d_y, const std::uint8_t* index,
                              float* d_x, std::int64_t i) {
  using Floats = typename Vector<lanes>::Floats;
  using Ints = typename Vector<lanes>::Ints;
  using Bytes = typename Vector<lanes>::Bytes;
  const std::int64_t window = p.op.window;
  for (std::int64_t j = 0; j < p.y.width; ++j) {
    Floats gradient;
    Bytes narrow;
    load(gradient, d_y + j * p.y.pixel);
    load(narrow, index + j * p.index.pixel);
    const Ints at = __builtin_convertvector(narrow, Ints);
    for (std::int64_t kh = 0; kh < window; ++kh)
      for (std::int64_t kw = 0; kw < window; ++kw) {
        const Floats out = at == static_cast<std::int32_t>(kh * window + kw) ? gradient : Floats{};
        std::memcpy(d_x + (i * window + kh) * p.x.row + (j * window + kw) * p.x.pixel, &out,
                    sizeof out);
      }
  }
}

// The adjoint in general: d_x is zero, windows add to it in order.
template <int lanes>
WARPSTEP_LOOP void scatter_row(const Pooling& p, const float* d_y, const std::uint8_t* index,
                               float* d_x, std::int64_t i) {
  for (std::int64_t j = 0; j < p.y.width; ++j)
    for (int l = 0; l < lanes; ++l) {
      const std::int64_t k = index[j * p.index.pixel + l];
      if (k == MaxPool::none) continue;
      const std::int64_t h = i * p.op.stride - p.op.padding + k / p.op.window;
      const std::int64_t w = j * p.op.stride - p.op.padding + k % p.op.window;
      d_x[h * p.x.row + w * p.x.pixel + l] += d_y[j * p.y.pixel + l];
    }
}

template <int lanes>
void pool(const Pooling& p, const Buffers& b) {
  static const auto row = vectorized<pool_row<lanes>>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t i = 0; i < p.y.height; ++i)
      for (std::int64_t g = 0; g < p.groups; ++g)
        row(p, as<float>(b.in[0]) + n * p.x.image + g * p.x.group,
            as<float>(b.out[0]) + n * p.y.image + g * p.y.group + i * p.y.row,
            as<std::uint8_t>(b.out[1]) + n * p.index.image + g * p.index.group + i * p.index.row,
            i);
}

template <int lanes>
void unpool(const Pooling& p, const Buffers& b) {
  static const auto tile_row = vectorized<unpool_row<lanes>>();
  static const auto any_row = vectorized<scatter_row<lanes>>();
  const bool tiles = p.op.stride == p.op.window && p.op.padding == 0;
  const bool covered =
      tiles && p.y.height * p.op.window == p.x.height && p.y.width * p.op.window == p.x.width;
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n) {
    float* image = as<float>(b.out[0]) + n * p.x.image;
    if (!covered) std::memset(image, 0, idx(p.x.image) * sizeof(float));
    for (std::int64_t i = 0; i < p.y.height; ++i)
      for (std::int64_t g = 0; g < p.groups; ++g) {
        const float* d_y = as<float>(b.in[0]) + n * p.y.image + g * p.y.group + i * p.y.row;
        const std::uint8_t* index =
            as<std::uint8_t>(b.in[1]) + n * p.index.image + g * p.index.group + i * p.index.row;
        (tiles ? tile_row : any_row)(p, d_y, index, image + g * p.x.group, i);
      }
  }
}

// The number of channels that are adjacent in every layout of the node, at most a vector register:
// wider vectors the compiler would keep in memory.
std::int64_t common_lanes(const Operands& operands, std::int64_t channels) {
  const std::int64_t block = operands.context.block;
  for (const auto* ids : {&operands.node.in, &operands.node.out})
    for (const int id : *ids)
      if (!operands.graph.value(id).layout.tag.empty()) return block;
  for (std::int64_t lanes = vector_lanes(); lanes >= 4; lanes /= 2)
    if (channels % lanes == 0) return lanes;
  return 1;
}

template <template <int> class Run>
std::unique_ptr<Kernel> with_lanes(std::int64_t lanes, const Pooling& pooling) {
  const std::string name = fmt::format("loops, {} channels at once", lanes);
  switch (lanes) {
    case 16: return host_kernel(name, [pooling](const Buffers& b) { Run<16>()(pooling, b); });
    case 8: return host_kernel(name, [pooling](const Buffers& b) { Run<8>()(pooling, b); });
    case 4: return host_kernel(name, [pooling](const Buffers& b) { Run<4>()(pooling, b); });
    default: return host_kernel(name, [pooling](const Buffers& b) { Run<1>()(pooling, b); });
  }
}

template <int lanes>
struct Pool {
  void operator()(const Pooling& p, const Buffers& b) const { pool<lanes>(p, b); }
};
template <int lanes>
struct Unpool {
  void operator()(const Pooling& p, const Buffers& b) const { unpool<lanes>(p, b); }
};

}  // namespace

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  const Shape& y = operands.out_shape();
  const std::int64_t lanes = common_lanes(operands, y[3]);
  return with_lanes<Pool>(
      lanes, {op, pixel_view(operands.in(0), lanes), pixel_view(operands.out(0), lanes),
              pixel_view(operands.out(1), lanes), y[0], y[3] / lanes});
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  const Shape& y = operands.in_shape(0);
  const std::int64_t lanes = common_lanes(operands, y[3]);
  return with_lanes<Unpool>(
      lanes, {op.pool, pixel_view(operands.out(), lanes), pixel_view(operands.in(0), lanes),
              pixel_view(operands.in(1), lanes), y[0], y[3] / lanes});
}

// Average pooling.

namespace {

// Images as `count` matrices, each of `rows` pixels by `width` adjacent channels. In blocks of
// channels, each block of each image is a matrix; a map of one pixel is the same in both layouts.
struct Planes {
  std::int64_t count, rows, width;
};

Planes planes_of(const Value& x, std::int64_t block) {
  const Shape& s = x.type.shape;
  if (x.layout.tag.empty()) return {s[0], s[1] * s[2], s[3]};
  return {s[0] * s[3] / block, s[1] * s[2], block};
}

WARPSTEP_LOOP void mean_rows_loop(const float* __restrict x, float* __restrict y, std::int64_t rows,
                                  std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) y[c] = 0;
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    for (std::int64_t c = 0; c < width; ++c) {
      const float* at = x + r * width + c;
      y[c] += (at[0] + at[width]) + (at[2 * width] + at[3 * width]);
    }
  for (; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) y[c] += x[r * width + c];
  const float scale = 1 / static_cast<float>(rows);
  for (std::int64_t c = 0; c < width; ++c) y[c] *= scale;
}
const auto mean_rows = vectorized<mean_rows_loop>();

WARPSTEP_LOOP void spread_rows_loop(const float* __restrict d_y, float* __restrict d_x,
                                    std::int64_t rows, std::int64_t width) {
  const float scale = 1 / static_cast<float>(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) d_x[r * width + c] = d_y[c] * scale;
}
const auto spread_rows = vectorized<spread_rows_loop>();

struct Windows {
  AvgPool op;
  PixelView x, y;  // d_x and d_y in the adjoint
  std::int64_t images, groups, lanes;
};

// Calls run(x, y) for every pixel of y of image n and each pixel of x in its window, with the
// indices of their first channels.
template <class Run>
WARPSTEP_LOOP void for_each_tap(const Windows& p, std::int64_t n, Run run) {
  for (std::int64_t g = 0; g < p.groups; ++g)
    for (std::int64_t i = 0; i < p.y.height; ++i)
      for (std::int64_t j = 0; j < p.y.width; ++j) {
        const std::int64_t h0 = i * p.op.stride - p.op.padding, w0 = j * p.op.stride - p.op.padding;
        const std::int64_t h_end = std::min(h0 + p.op.window, p.x.height),
                           w_end = std::min(w0 + p.op.window, p.x.width);
        for (std::int64_t h = std::max<std::int64_t>(0, h0); h < h_end; ++h)
          for (std::int64_t w = std::max<std::int64_t>(0, w0); w < w_end; ++w)
            run(n * p.x.image + g * p.x.group + h * p.x.row + w * p.x.pixel,
                n * p.y.image + g * p.y.group + i * p.y.row + j * p.y.pixel);
      }
}

WARPSTEP_LOOP void pool_image_loop(const Windows& p, std::int64_t n, const float* __restrict x,
                                   float* __restrict y) {
  const float share = 1 / static_cast<float>(p.op.window * p.op.window);
  std::fill_n(y + n * p.y.image, p.y.image, 0.0F);
  for_each_tap(p, n, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t l = 0; l < p.lanes; ++l) y[to + l] += x[from + l];
  });
  for (std::int64_t i = 0; i < p.y.image; ++i) y[n * p.y.image + i] *= share;
}
const auto pool_image = vectorized<pool_image_loop>();

WARPSTEP_LOOP void unpool_image_loop(const Windows& p, std::int64_t n, const float* __restrict d_y,
                                     float* __restrict d_x) {
  const float share = 1 / static_cast<float>(p.op.window * p.op.window);
  std::fill_n(d_x + n * p.x.image, p.x.image, 0.0F);
  for_each_tap(p, n, [&](std::int64_t to, std::int64_t from) {
    for (std::int64_t l = 0; l < p.lanes; ++l) d_x[to + l] += share * d_y[from + l];
  });
}
const auto unpool_image = vectorized<unpool_image_loop>();

// The number of adjacent channels: a block if either side is stored in blocks, else all.
Windows windows_of(const AvgPool& op, const Operands& operands, const Value& x, const Value& y) {
  const std::int64_t channels = x.type.shape[3];
  const bool plain = x.layout.tag.empty() && y.layout.tag.empty();
  const std::int64_t lanes = plain ? channels : operands.context.block;
  return {op, pixel_view(x, lanes), pixel_view(y, lanes), x.type.shape[0], channels / lanes, lanes};
}

}  // namespace

std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands& operands) {
  if (op.window == 0)
    return host_kernel("loops",
                       [p = planes_of(operands.in(0), operands.context.block)](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.count * p.rows * p.width > 65536)
                         for (std::int64_t i = 0; i < p.count; ++i)
                           mean_rows(as<float>(b.in[0]) + i * p.rows * p.width,
                                     as<float>(b.out[0]) + i * p.width, p.rows, p.width);
                       });
  return host_kernel(
      "loops", [p = windows_of(op, operands, operands.in(0), operands.out())](const Buffers& b) {
#pragma omp parallel for schedule(static)
        for (std::int64_t n = 0; n < p.images; ++n)
          pool_image(p, n, as<float>(b.in[0]), as<float>(b.out[0]));
      });
}

std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands& operands) {
  if (op.pool.window == 0)
    return host_kernel("loops",
                       [p = planes_of(operands.out(), operands.context.block)](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.count * p.rows * p.width > 65536)
                         for (std::int64_t i = 0; i < p.count; ++i)
                           spread_rows(as<float>(b.in[0]) + i * p.width,
                                       as<float>(b.out[0]) + i * p.rows * p.width, p.rows, p.width);
                       });
  return host_kernel("loops", [p = windows_of(op.pool, operands, operands.out(), operands.in(0))](
                                  const Buffers& b) {
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < p.images; ++n)
      unpool_image(p, n, as<float>(b.in[0]), as<float>(b.out[0]));
  });
}

}  // namespace warpstep::cpu

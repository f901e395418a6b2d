// Average pooling. Of whole images it is sums of columns in either layout; smaller windows go pixel
// by pixel. Bound by memory.
#include "kernels/cpu/simd.h"
#include "kernels/pool/pool.cpu.h"

namespace warpstep::cpu {
namespace {

// Images as matrices: `count` of them, each `rows` pixels of `width` channels that lie together. In
// blocks of channels a block of an image is one; a map of one pixel is the same in both layouts.
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
  const float share = 1 / static_cast<float>(rows);
  for (std::int64_t c = 0; c < width; ++c) y[c] *= share;
}
const auto mean_rows = vectorized<mean_rows_loop>();

WARPSTEP_LOOP void spread_rows_loop(const float* __restrict d_y, float* __restrict d_x,
                                    std::int64_t rows, std::int64_t width) {
  const float share = 1 / static_cast<float>(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) d_x[r * width + c] = d_y[c] * share;
}
const auto spread_rows = vectorized<spread_rows_loop>();

struct Windows {
  AvgPool op;
  PixelView x, y;  // stand for d_x and d_y in the adjoint
  std::int64_t images, groups, lanes;
};

// Calls run(x, y) for every pixel of y and each pixel of x in its window, with the indices of their
// first channels; images side by side.
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

// Channels lie together in blocks where either side has them, else all of them.
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

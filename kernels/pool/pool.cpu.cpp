// Pooling on the CPU, bound by memory. Figures per layer: bench/RECORDS.md.
//   max       reads x (or d_x) and y once, with an index in bytes
//   average   whole images are sums of columns; smaller windows go pixel by pixel

#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// A pool and its extents; x and y are d_x and d_y in the adjoint.
template <class Op>
struct Pool {
  Op op;
  std::int64_t images, height, width, out_height, out_width, channels;

  Pool(const Op& pool, const Shape& x, const Shape& y)
      : op(pool),
        images(x[0]),
        height(x[1]),
        width(x[2]),
        out_height(y[1]),
        out_width(y[2]),
        channels(x[3]) {}
  std::int64_t row() const { return width * channels; }
  std::int64_t out_row() const { return out_width * channels; }
  std::int64_t image() const { return height * row(); }
  std::int64_t out_image() const { return out_height * out_row(); }
};
using Pooling = Pool<MaxPool>;

// `lanes` channels as GNU vectors: the compiler splits them where the instruction set has only
// narrower registers.
template <int lanes>
struct Vector {
  typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
  typedef std::int32_t Ints __attribute__((vector_size(lanes * sizeof(std::int32_t))));
  typedef std::uint16_t Shorts __attribute__((vector_size(lanes * sizeof(std::uint16_t))));
  typedef std::uint8_t Bytes __attribute__((vector_size(lanes)));
};

template <class V>
inline __attribute__((always_inline)) void load(V& vector, const void* from) {
  std::memcpy(&vector, from, sizeof vector);
}

// Loads and stores positions. GCC 12 makes single instructions of the loops where the set has them,
// but 50 of one __builtin_convertvector() for 16 bytes; two of them narrow well without AVX-512.
template <int lanes>
WARPSTEP_LOOP void load_positions(typename Vector<lanes>::Ints& positions,
                                  const std::uint8_t* from) {
  typename Vector<lanes>::Bytes bytes;
  load(bytes, from);
  std::int32_t wide[lanes];
  for (int l = 0; l < lanes; ++l) wide[l] = bytes[l];
  load(positions, wide);
}
template <int lanes>
WARPSTEP_LOOP void store_positions(std::uint8_t* to,
                                   const typename Vector<lanes>::Ints& positions) {
  using V = Vector<lanes>;
  typename V::Bytes bytes;
  if constexpr (lanes > 8) {
    for (int l = 0; l < lanes; ++l) bytes[l] = static_cast<std::uint8_t>(positions[l]);
  } else {
    const auto half = __builtin_convertvector(positions, typename V::Shorts);
    bytes = __builtin_convertvector(half, typename V::Bytes);
  }
  std::memcpy(to, &bytes, sizeof bytes);
}

// The channel at which the vector after the one at `c` begins. The last one overlaps the one before
// it, if the channels are not a multiple of `lanes`: it writes the same values again.
template <int lanes>
WARPSTEP_LOOP std::int64_t next_vector(std::int64_t c, std::int64_t channels) {
  c += lanes;
  return c >= channels || c + lanes <= channels ? c : channels - lanes;
}

// Computes row i of the outputs of one image.
template <int lanes>
WARPSTEP_LOOP void pool_row(const Pooling& p, const float* x, float* y, std::uint8_t* index,
                            std::int64_t i) {
  using Floats = typename Vector<lanes>::Floats;
  using Ints = typename Vector<lanes>::Ints;
  const std::int64_t window = p.op.window, h0 = i * p.op.stride - p.op.padding;
  const std::int64_t h_begin = std::max<std::int64_t>(0, -h0),
                     h_end = std::min(window, p.height - h0);
  for (std::int64_t j = 0; j < p.out_width; ++j) {
    const std::int64_t w0 = j * p.op.stride - p.op.padding;
    const std::int64_t w_begin = std::max<std::int64_t>(0, -w0),
                       w_end = std::min(window, p.width - w0);
    for (std::int64_t c = 0; c < p.channels; c = next_vector<lanes>(c, p.channels)) {
      Floats best = Floats{} - __builtin_inff(), in;
      // If no element is above -inf (all are NaN, for example): the first position in the image.
      Ints at = Ints{} + static_cast<std::int32_t>(h_begin * window + w_begin);
      for (std::int64_t kh = h_begin; kh < h_end; ++kh)
        for (std::int64_t kw = w_begin; kw < w_end; ++kw) {
          load(in, x + (h0 + kh) * p.row() + (w0 + kw) * p.channels + c);
          const Ints better = in > best;
          at = better ? Ints{} + static_cast<std::int32_t>(kh * window + kw) : at;
          best = better ? in : best;
        }
      if (p.op.relu) {
        const Ints positive = best > 0;
        at = positive ? at : Ints{} + std::int32_t{MaxPool::none};
        best = positive ? best : Floats{};
      }
      std::memcpy(y + j * p.channels + c, &best, sizeof best);
      store_positions<lanes>(index + j * p.channels + c, at);
    }
  }
}

// The adjoint if windows do not overlap: every element of d_x belongs to at most one window and is
// written once.
template <int lanes>
WARPSTEP_LOOP void unpool_row(const Pooling& p, const float* d_y, const std::uint8_t* index,
                              float* d_x, std::int64_t i) {
  using Floats = typename Vector<lanes>::Floats;
  using Ints = typename Vector<lanes>::Ints;
  const std::int64_t window = p.op.window;
  for (std::int64_t j = 0; j < p.out_width; ++j)
    for (std::int64_t c = 0; c < p.channels; c = next_vector<lanes>(c, p.channels)) {
      Floats gradient;
      Ints at;
      load(gradient, d_y + j * p.channels + c);
      load_positions<lanes>(at, index + j * p.channels + c);
      for (std::int64_t kh = 0; kh < window; ++kh)
        for (std::int64_t kw = 0; kw < window; ++kw) {
          const Floats out =
              at == static_cast<std::int32_t>(kh * window + kw) ? gradient : Floats{};
          std::memcpy(d_x + (i * window + kh) * p.row() + (j * window + kw) * p.channels + c, &out,
                      sizeof out);
        }
    }
}

// The windows along one axis that have a position: [begin, end).
struct Reach {
  std::int64_t begin, end;
};
std::vector<Reach> reach_of(const MaxPool& op, std::int64_t in, std::int64_t out) {
  std::vector<Reach> all;
  for (std::int64_t i = 0; i < in; ++i) {
    const std::int64_t at = i + op.padding;
    all.push_back(
        {at < op.window ? 0 : (at - op.window) / op.stride + 1, std::min(out, at / op.stride + 1)});
  }
  return all;
}

// The adjoint in general, one row of d_x: each pixel takes from the windows over it, in order, what
// they took from it.
template <int lanes>
WARPSTEP_LOOP void gather_row(const Pooling& p, const Reach* reach, Reach rows, const float* d_y,
                              const std::uint8_t* index, float* d_x, std::int64_t h) {
  using Floats = typename Vector<lanes>::Floats;
  using Ints = typename Vector<lanes>::Ints;
  const std::int64_t stride = p.op.stride, row_step = stride * p.op.window;
  for (std::int64_t w = 0; w < p.width; ++w, d_x += p.channels) {
    // Of the first window over the pixel: where it is, and the pixel's position in it.
    const std::int64_t i0 = rows.begin, j0 = reach[w].begin, columns = reach[w].end - j0;
    const std::int64_t first = i0 * p.out_row() + j0 * p.channels;
    const std::int64_t position =
        (h + p.op.padding - i0 * stride) * p.op.window + w + p.op.padding - j0 * stride;
    for (std::int64_t c = 0; c < p.channels; c = next_vector<lanes>(c, p.channels)) {
      Floats sum{}, gradient;
      Ints at;
      for (std::int64_t i = 0; i < rows.end - i0; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          const std::int64_t from = first + i * p.out_row() + j * p.channels + c;
          load(gradient, d_y + from);
          load_positions<lanes>(at, index + from);
          const auto here = static_cast<std::int32_t>(position - i * row_step - j * stride);
          sum += at == here ? gradient : Floats{};
        }
      std::memcpy(d_x + c, &sum, sizeof sum);
    }
  }
}

template <int lanes>
void pool(const Pooling& p, const Buffers& b) {
  static const auto row = vectorized<pool_row<lanes>>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t i = 0; i < p.out_height; ++i) {
      const std::int64_t at = (n * p.out_height + i) * p.out_row();
      row(p, as<float>(b.in[0]) + n * p.height * p.row(), as<float>(b.out[0]) + at,
          as<std::uint8_t>(b.out[1]) + at, i);
    }
}

template <int lanes>
void unpool_tiles(const Pooling& p, const Buffers& b) {
  static const auto row = vectorized<unpool_row<lanes>>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t i = 0; i < p.out_height; ++i) {
      const std::int64_t at = (n * p.out_height + i) * p.out_row();
      row(p, as<float>(b.in[0]) + at, as<std::uint8_t>(b.in[1]) + at,
          as<float>(b.out[0]) + n * p.height * p.row(), i);
    }
}

template <int lanes>
void unpool_overlapping(const Pooling& p, const std::vector<Reach>& rows,
                        const std::vector<Reach>& columns, const Buffers& b) {
  static const auto row = vectorized<gather_row<lanes>>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t h = 0; h < p.height; ++h) {
      const std::int64_t at = n * p.out_height * p.out_row();
      row(p, columns.data(), rows[idx(h)], as<float>(b.in[0]) + at, as<std::uint8_t>(b.in[1]) + at,
          as<float>(b.out[0]) + (n * p.height + h) * p.row(), h);
    }
}

// The channels that a loop takes at once: at most a vector register, as the compiler would keep
// wider vectors in memory.
std::int64_t lanes_for(std::int64_t channels) {
  for (std::int64_t lanes = vector_lanes(); lanes >= 4; lanes /= 2)
    if (channels >= lanes) return lanes;
  return 1;
}

// Calls make.operator()<lanes>(name) with the lanes for these channels.
template <class Make>
std::unique_ptr<Kernel> with_lanes(std::int64_t channels, Make make) {
  const std::int64_t lanes = lanes_for(channels);
  const std::string name = fmt::format("loops, {} channels at once", lanes);
  switch (lanes) {
    case 16: return make.template operator()<16>(name);
    case 8: return make.template operator()<8>(name);
    case 4: return make.template operator()<4>(name);
    default: return make.template operator()<1>(name);
  }
}

}  // namespace

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  const Pooling p(op, operands.in_shape(0), operands.out_shape());
  return with_lanes(p.channels, [&]<int lanes>(const std::string& name) {
    return host_kernel(name, [p](const Buffers& b) { pool<lanes>(p, b); });
  });
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  const Pooling p(op.pool, op.input, operands.in_shape(0));
  const bool tiles = p.op.stride == p.op.window && p.op.padding == 0 &&
                     p.out_height * p.op.window == p.height && p.out_width * p.op.window == p.width;
  return with_lanes(p.channels, [&]<int lanes>(const std::string& name) {
    if (tiles) return host_kernel(name, [p](const Buffers& b) { unpool_tiles<lanes>(p, b); });
    const std::vector<Reach> rows = reach_of(p.op, p.height, p.out_height),
                             columns = reach_of(p.op, p.width, p.out_width);
    return host_kernel(name,
                       [=](const Buffers& b) { unpool_overlapping<lanes>(p, rows, columns, b); });
  });
}

// Average pooling.

namespace {

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

using MeanWindows = Pool<AvgPool>;

// Calls run(x, y) for every pixel of y and each pixel of x in its window, with the indices of their
// first channels in an image.
template <class Run>
WARPSTEP_LOOP void for_each_tap(const MeanWindows& p, Run run) {
  for (std::int64_t i = 0; i < p.out_height; ++i)
    for (std::int64_t j = 0; j < p.out_width; ++j) {
      const std::int64_t h0 = i * p.op.stride - p.op.padding, w0 = j * p.op.stride - p.op.padding;
      const std::int64_t h_end = std::min(h0 + p.op.window, p.height),
                         w_end = std::min(w0 + p.op.window, p.width);
      for (std::int64_t h = std::max<std::int64_t>(0, h0); h < h_end; ++h)
        for (std::int64_t w = std::max<std::int64_t>(0, w0); w < w_end; ++w)
          run((h * p.width + w) * p.channels, (i * p.out_width + j) * p.channels);
    }
}

WARPSTEP_LOOP void pool_image_loop(const MeanWindows& p, const float* __restrict x,
                                   float* __restrict y) {
  const float share = 1 / static_cast<float>(p.op.window * p.op.window);
  std::fill_n(y, p.out_image(), 0.0F);
  for_each_tap(p, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t c = 0; c < p.channels; ++c) y[to + c] += x[from + c];
  });
  for (std::int64_t i = 0; i < p.out_image(); ++i) y[i] *= share;
}
const auto pool_image = vectorized<pool_image_loop>();

WARPSTEP_LOOP void unpool_image_loop(const MeanWindows& p, const float* __restrict d_y,
                                     float* __restrict d_x) {
  const float share = 1 / static_cast<float>(p.op.window * p.op.window);
  std::fill_n(d_x, p.image(), 0.0F);
  for_each_tap(p, [&](std::int64_t to, std::int64_t from) {
    for (std::int64_t c = 0; c < p.channels; ++c) d_x[to + c] += share * d_y[from + c];
  });
}
const auto unpool_image = vectorized<unpool_image_loop>();

}  // namespace

std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands& operands) {
  const MeanWindows p(op, operands.in_shape(0), operands.out_shape());
  const std::int64_t pixels = p.height * p.width;
  if (op.window == 0)
    return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.images * p.image() > 65536)
      for (std::int64_t n = 0; n < p.images; ++n)
        mean_rows(as<float>(b.in[0]) + n * p.image(), as<float>(b.out[0]) + n * p.channels, pixels,
                  p.channels);
    });
  return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < p.images; ++n)
      pool_image(p, as<float>(b.in[0]) + n * p.image(), as<float>(b.out[0]) + n * p.out_image());
  });
}

std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands& operands) {
  const MeanWindows p(op.pool, op.input, operands.in_shape(0));
  const std::int64_t pixels = p.height * p.width;
  if (op.pool.window == 0)
    return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.images * p.image() > 65536)
      for (std::int64_t n = 0; n < p.images; ++n)
        spread_rows(as<float>(b.in[0]) + n * p.channels, as<float>(b.out[0]) + n * p.image(),
                    pixels, p.channels);
    });
  return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < p.images; ++n)
      unpool_image(p, as<float>(b.in[0]) + n * p.out_image(), as<float>(b.out[0]) + n * p.image());
  });
}

}  // namespace warpstep::cpu

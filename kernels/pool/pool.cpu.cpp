// Max pooling on the CPU, bound by memory: reads x (or d_x) and y once, with an index in bytes. The
// adjoint of overlapping windows gathers or scatters, see scatters(). Figures per layer:
// bench/RECORDS.md.

#include <omp.h>

#include <cmath>
#include <vector>

#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/pool/pool.cpu.h"

namespace warpstep::cpu {
namespace {

using Pooling = Pool<MaxPool>;

// Computes row i of the outputs of one image, but skips NaN: true if x may have one, which
// mark_nan() then adds. The sums that tell are the cheapest operation that keeps it: one per
// element.
template <class T, int lanes>
WARPSTEP_LOOP bool pool_row(const Pooling& p, const T* x, T* y, std::uint8_t* index,
                            std::int64_t i) {
  using Floats = typename VectorOf<lanes>::Floats;
  using Ints = typename VectorOf<lanes>::Ints;
  const std::int64_t window = p.op.window, h0 = i * p.op.stride - p.op.padding;
  const std::int64_t h_begin = std::max<std::int64_t>(0, -h0),
                     h_end = std::min(window, p.height - h0);
  Floats all{};
  for (std::int64_t j = 0; j < p.out_width; ++j) {
    const std::int64_t w0 = j * p.op.stride - p.op.padding;
    const std::int64_t w_begin = std::max<std::int64_t>(0, -w0),
                       w_end = std::min(window, p.width - w0);
    const auto skipped = static_cast<std::int32_t>(window - (w_end - w_begin));
    const auto first = static_cast<std::int32_t>(h_begin * window + w_begin);
    for (std::int64_t c = 0; c < p.channels; c = next_vector<lanes>(c, p.channels)) {
      Floats best = Floats{} - __builtin_inff(), sum{}, in;
      // If no element is above -inf: the first position in the image.
      Ints at{};
      if (first != 0) at = at + first;  // not always: GCC 12 makes 32 instructions of it
      Ints here = at;
      for (std::int64_t kh = h_begin; kh < h_end; ++kh) {
        for (std::int64_t kw = w_begin; kw < w_end; ++kw) {
          load_stored(in, x + (h0 + kh) * p.row() + (w0 + kw) * p.channels + c);
          const Ints better = in > best;
          at = better ? here : at;
          best = better ? in : best;
          sum += in;
          here = here + 1;
        }
        if (skipped != 0) here = here + skipped;
      }
      all += sum;
      if (p.op.relu) {
        const Ints positive = best > 0;
        at = positive ? at : Ints{} + std::int32_t{MaxPool::none};
        best = positive ? best : Floats{};
      }
      store_stored(y + j * p.channels + c, best);
      store_bytes(index + j * p.channels + c, at);
    }
  }
  float total = 0;
  for (int l = 0; l < lanes; ++l) total += all[l];
  return total != total;
}

// Does the same for few channels or large windows: takes the maxima over the window's rows of every
// column, then of consecutive columns, each for vectors of pixels, and leaves out those that a
// stride skips. `best` and `at` have a padded row and a vector each; equal numbers keep the first
// position.
template <class T, int lanes>
WARPSTEP_LOOP bool pool_columns(const Pooling& p, const T* x, T* y, std::uint8_t* index,
                                std::int64_t i, float* best, std::int32_t* at) {
  using Floats = typename VectorOf<lanes>::Floats;
  using Ints = typename VectorOf<lanes>::Ints;
  const std::int64_t window = p.op.window, h0 = i * p.op.stride - p.op.padding;
  const std::int64_t h_begin = std::max<std::int64_t>(0, -h0),
                     h_end = std::min(window, p.height - h0);
  const std::int64_t row = p.row(), margin = p.op.padding * p.channels;
  Floats all{};
  for (std::int64_t c = 0; c < row; c = next_vector<lanes>(c, row)) {
    Floats top = Floats{} - __builtin_inff(), in;
    Ints where = Ints{} + static_cast<std::int32_t>(h_begin * window), here = where;
    for (std::int64_t kh = h_begin; kh < h_end; ++kh) {
      load_stored(in, x + (h0 + kh) * row + c);
      const Ints better = in > top;
      where = better ? here : where;
      top = better ? in : top;
      all += in;
      here = here + static_cast<std::int32_t>(window);
    }
    store_stored(best + margin + c, top);
    __builtin_memcpy(at + margin + c, &where, sizeof where);
  }
  for (std::int64_t c = 0; c < margin; ++c) {
    best[c] = best[margin + row + c] = -__builtin_inff();
    at[c] = at[margin + row + c] = MaxPool::none;  // after the positions of a window
  }
  for (std::int64_t c = 0; c < ((p.out_width - 1) * p.op.stride + 1) * p.channels; c += lanes) {
    Floats top, in;
    Ints where, here;
    load_stored(top, best + c);
    __builtin_memcpy(&where, at + c, sizeof where);
    for (std::int64_t kw = 1; kw < window; ++kw) {
      load_stored(in, best + c + kw * p.channels);
      __builtin_memcpy(&here, at + c + kw * p.channels, sizeof here);
      here = here + static_cast<std::int32_t>(kw);
      // One mask per selection: GCC 12 takes combined ones apart.
      const Ints first = here < where ? here : where, better = in > top;
      where = in == top ? first : where;
      where = better ? here : where;
      top = better ? in : top;
    }
    if (p.op.relu) {
      const Ints positive = top > 0;
      where = positive ? where : Ints{} + std::int32_t{MaxPool::none};
      top = positive ? top : Floats{};
    }
    store_stored(best + c, top);
    __builtin_memcpy(at + c, &where, sizeof where);
  }
  const std::int64_t run = p.op.stride == 1 ? p.out_row() : p.channels;
  for (std::int64_t to = 0; to < p.out_row(); to += run)
    for (std::int64_t c = 0; c < run; ++c) {
      y[to + c] = rounded_to<T>(best[to * p.op.stride + c]);
      index[to + c] = static_cast<std::uint8_t>(at[to * p.op.stride + c]);
    }
  float total = 0;
  for (int l = 0; l < lanes; ++l) total += all[l];
  return total != total;
}

// Gives the windows of row i that have a NaN that as their maximum.
template <class T>
void mark_nan(const Pooling& p, const T* x, T* y, std::uint8_t* index, std::int64_t i) {
  const std::int64_t window = p.op.window;
  for (std::int64_t j = 0; j < p.out_width; ++j)
    for (std::int64_t k = 0; k < window * window; ++k) {
      const std::int64_t h = i * p.op.stride - p.op.padding + k / window,
                         w = j * p.op.stride - p.op.padding + k % window;
      if (h < 0 || h >= p.height || w < 0 || w >= p.width) continue;
      for (std::int64_t c = 0; c < p.channels; ++c) {
        const T in = x[h * p.row() + w * p.channels + c];
        if (!std::isnan(as_float(in))) continue;
        y[j * p.channels + c] = in;
        index[j * p.channels + c] = static_cast<std::uint8_t>(k);
      }
    }
}

// The adjoint if windows do not overlap: every element of d_x belongs to at most one window and is
// written once.
template <class T, int lanes>
WARPSTEP_LOOP void unpool_row(const Pooling& p, const T* d_y, const std::uint8_t* index, T* d_x,
                              std::int64_t i) {
  using Floats = typename VectorOf<lanes>::Floats;
  using Ints = typename VectorOf<lanes>::Ints;
  const std::int64_t window = p.op.window;
  for (std::int64_t j = 0; j < p.out_width; ++j)
    for (std::int64_t c = 0; c < p.channels; c = next_vector<lanes>(c, p.channels)) {
      Floats gradient;
      Ints at;
      load_stored(gradient, d_y + j * p.channels + c);
      load_bytes(at, index + j * p.channels + c);
      for (std::int64_t kh = 0; kh < window; ++kh)
        for (std::int64_t kw = 0; kw < window; ++kw) {
          const Floats out =
              at == static_cast<std::int32_t>(kh * window + kw) ? gradient : Floats{};
          store_stored(d_x + (i * window + kh) * p.row() + (j * window + kw) * p.channels + c, out);
        }
    }
}

// The adjoint in general, one row of d_x: each pixel takes from the windows over it, in order, what
// they took from it.
template <class T, int lanes>
WARPSTEP_LOOP void gather_row(const Pooling& p, const Reach* reach, Reach rows, const T* d_y,
                              const std::uint8_t* index, T* d_x, std::int64_t h) {
  using Floats = typename VectorOf<lanes>::Floats;
  using Ints = typename VectorOf<lanes>::Ints;
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
          load_stored(gradient, d_y + from);
          load_bytes(at, index + from);
          const auto here = static_cast<std::int32_t>(position - i * row_step - j * stride);
          sum += at == here ? gradient : Floats{};
        }
      store_stored(d_x + c, sum);
    }
  }
}

// The adjoint where that costs more than a window's: rows [band.begin, band.end) of d_x, in floats.
// Each window adds its gradient at its maximum, in order, so the bits are those of gather_row().
template <class T>
void scatter_rows(const Pooling& p, const Reach* reach, Reach band, const T* d_y,
                  const std::uint8_t* index, float* sums) {
  const std::int64_t window = p.op.window, height = band.end - band.begin;
  std::int64_t places[MaxPool::none];  // offsets of the positions in a window
  for (std::int64_t k = 0; k < window * window; ++k)
    places[k] = k / window * p.row() + k % window * p.channels;
  std::fill_n(sums, height * p.row(), 0.0F);
  for (std::int64_t i = reach[band.begin].begin; i < reach[band.end - 1].end; ++i) {
    // The positions that are in the band; MaxPool::none is none of them.
    const std::int64_t h0 = i * p.op.stride - p.op.padding - band.begin,
                       first = std::max<std::int64_t>(0, -h0) * window,
                       count = std::min(window, height - h0) * window - first;
    for (std::int64_t j = 0; j < p.out_width; ++j) {
      const std::int64_t from = i * p.out_row() + j * p.channels;
      float* to = sums + h0 * p.row() + (j * p.op.stride - p.op.padding) * p.channels;
      for (std::int64_t c = 0; c < p.channels; ++c) {
        const std::int64_t at = index[from + c];
        if (at >= first && at < first + count) to[places[at] + c] += as_float(d_y[from + c]);
      }
    }
  }
}

template <class T, int lanes>
void pool(const Pooling& p, const Buffers& b) {
  static const auto row = vectorized<pool_row<T, lanes>, lanes>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t i = 0; i < p.out_height; ++i) {
      const std::int64_t at = (n * p.out_height + i) * p.out_row();
      const T* x = as<T>(b.in[0]) + n * p.image();
      T* y = as<T>(b.out[0]) + at;
      std::uint8_t* index = as<std::uint8_t>(b.out[1]) + at;
      if (row(p, x, y, index, i)) mark_nan(p, x, y, index, i);
    }
}

template <class T, int lanes>
std::unique_ptr<Kernel> pool_by_columns(const Pooling& p) {
  static const auto pool = vectorized<pool_columns<T, lanes>, lanes>();
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  const std::int64_t size = (p.width + 2 * p.op.padding) * p.channels + lanes;
  const auto run = [=](const Buffers& b) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (std::int64_t n = 0; n < p.images; ++n)
      for (std::int64_t i = 0; i < p.out_height; ++i) {
        const std::int64_t at = (n * p.out_height + i) * p.out_row();
        const T* x = as<T>(b.in[0]) + n * p.image();
        T* y = as<T>(b.out[0]) + at;
        std::uint8_t* index = as<std::uint8_t>(b.out[1]) + at;
        float* best = as<float>(b.workspace) + omp_get_thread_num() * size;
        std::int32_t* where =
            as<std::int32_t>(b.workspace) + (threads + omp_get_thread_num()) * size;
        if (pool(p, x, y, index, i, best, where)) mark_nan(p, x, y, index, i);
      }
  };
  return host_kernel("loops, rows of pixels at once", run, idx(2 * threads * size) * sizeof(float));
}

template <class T, int lanes>
void unpool_tiles(const Pooling& p, const Buffers& b) {
  static const auto row = vectorized<unpool_row<T, lanes>, lanes>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t i = 0; i < p.out_height; ++i) {
      const std::int64_t at = (n * p.out_height + i) * p.out_row();
      row(p, as<T>(b.in[0]) + at, as<std::uint8_t>(b.in[1]) + at,
          as<T>(b.out[0]) + n * p.height * p.row(), i);
    }
}

template <class T, int lanes>
void unpool_overlapping(const Pooling& p, const std::vector<Reach>& rows,
                        const std::vector<Reach>& columns, const Buffers& b) {
  static const auto row = vectorized<gather_row<T, lanes>, lanes>();
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < p.images; ++n)
    for (std::int64_t h = 0; h < p.height; ++h) {
      const std::int64_t at = n * p.out_height * p.out_row();
      row(p, columns.data(), rows[idx(h)], as<T>(b.in[0]) + at, as<std::uint8_t>(b.in[1]) + at,
          as<T>(b.out[0]) + (n * p.height + h) * p.row(), h);
    }
}

template <class T>
std::unique_ptr<Kernel> scatter_kernel(const Pooling& p) {
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  const std::int64_t images = std::max<std::int64_t>(1, p.images),
                     bands = std::min((2 * threads + images - 1) / images,
                                      std::max<std::int64_t>(1, p.height / p.op.window)),
                     floats = (p.height + bands - 1) / bands * p.row();
  constexpr bool in_place = std::is_same_v<T, float>;
  const auto run = [=, reach = reach_of(p.op, p.height, p.out_height)](const Buffers& b) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (std::int64_t n = 0; n < p.images; ++n)
      for (std::int64_t k = 0; k < bands; ++k) {
        const Reach band{p.height * k / bands, p.height * (k + 1) / bands};
        const T* d_y = as<T>(b.in[0]) + n * p.out_image();
        const std::uint8_t* index = as<std::uint8_t>(b.in[1]) + n * p.out_image();
        T* d_x = as<T>(b.out[0]) + n * p.image() + band.begin * p.row();
        if constexpr (in_place) {
          scatter_rows(p, reach.data(), band, d_y, index, d_x);
        } else {
          float* sums = as<float>(b.workspace) + omp_get_thread_num() * floats;
          scatter_rows(p, reach.data(), band, d_y, index, sums);
          for (std::int64_t e = 0; e < (band.end - band.begin) * p.row(); ++e)
            d_x[e] = rounded_to<T>(sums[e]);
        }
      }
  };
  return host_kernel("loops, scattered", run, in_place ? 0 : idx(threads * floats) * sizeof(float));
}

// Whether the adjoint scatters: an element of a window takes as long as a vector over the pixels of
// a window as far apart as the windows.
bool scatters(const Pooling& p, std::int64_t lanes) {
  const std::int64_t vectors = (p.channels + lanes - 1) / lanes;
  return p.op.window * p.op.window * vectors > p.channels;
}

// Whether max pooling takes whole rows of pixels at once: it has four times the steps per vector,
// but for each of a window's rows and columns, not of its pixels.
bool by_columns(const Pooling& p) {
  const std::int64_t lanes = lanes_for(p.channels), vectors = (p.channels + lanes - 1) / lanes,
                     wide = lanes_for(p.row());
  return wide > 1 && p.op.window * vectors * wide > 4 * p.op.stride * p.channels;
}

}  // namespace

std::unique_ptr<Kernel> bind(const MaxPool& op, const Operands& operands) {
  const Pooling p(op, operands.in_shape(0), operands.out_shape());
  const DType dtype = operands.in(0).type.dtype;
  if (by_columns(p))
    return with_stored(dtype, [&]<class T>() {
      switch (lanes_for(p.row())) {
        case 16: return pool_by_columns<T, 16>(p);
        case 8: return pool_by_columns<T, 8>(p);
        default: return pool_by_columns<T, 4>(p);
      }
    });
  return with_lanes(dtype, p.channels, [&]<class T, int lanes>(const std::string& name) {
    return host_kernel(name, [p](const Buffers& b) { pool<T, lanes>(p, b); });
  });
}

std::unique_ptr<Kernel> bind(const MaxPoolGrad& op, const Operands& operands) {
  if (op.bias_gradient) refuse_fusion(operands, fusion::dgrad_bias);
  const Pooling p(op.pool, op.input, operands.in_shape(0));
  const bool tiles = p.op.stride == p.op.window && p.op.padding == 0 &&
                     p.out_height * p.op.window == p.height && p.out_width * p.op.window == p.width;
  const auto make = [&]<class T, int lanes>(const std::string& name) {
    if (tiles && lanes > 1)
      return host_kernel(name, [p](const Buffers& b) { unpool_tiles<T, lanes>(p, b); });
    if (scatters(p, lanes)) return scatter_kernel<T>(p);
    const std::vector<Reach> rows = reach_of(p.op, p.height, p.out_height),
                             columns = reach_of(p.op, p.width, p.out_width);
    return host_kernel(
        name, [=](const Buffers& b) { unpool_overlapping<T, lanes>(p, rows, columns, b); });
  };
  return with_lanes(operands.in(0).type.dtype, p.channels, make);
}

}  // namespace warpstep::cpu

// Average pooling on the CPU, bound by memory: sums of rows, then for windows smaller than the
// image of pixels of these. Figures per layer: bench/RECORDS.md.
#include <omp.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"
#include "kernels/pool/pool.cpu.h"

namespace warpstep::cpu {
namespace {

// Columns whose sums a loop keeps in floats while it adds rows.
constexpr std::int64_t mean_columns = 256;

template <class T>
WARPSTEP_LOOP void mean_rows_loop(const T* __restrict x, T* __restrict y, std::int64_t rows,
                                  std::int64_t width) {
  const float scale = 1 / static_cast<float>(rows);
  float sums[mean_columns];
  for (std::int64_t first = 0; first < width; first += mean_columns) {
    const std::int64_t count = std::min(mean_columns, width - first);
    for (std::int64_t c = 0; c < count; ++c) sums[c] = 0;
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      for (std::int64_t c = 0; c < count; ++c) {
        const T* at = x + r * width + first + c;
        sums[c] += (as_float(at[0]) + as_float(at[width])) +
                   (as_float(at[2 * width]) + as_float(at[3 * width]));
      }
    for (; r < rows; ++r)
      for (std::int64_t c = 0; c < count; ++c) sums[c] += as_float(x[r * width + first + c]);
    for (std::int64_t c = 0; c < count; ++c) y[first + c] = rounded_to<T>(sums[c] * scale);
  }
}
template <class T>
const auto mean_rows = vectorized<mean_rows_loop<T>>();

template <class T>
WARPSTEP_LOOP void spread_rows_loop(const T* __restrict d_y, T* __restrict d_x, std::int64_t rows,
                                    std::int64_t width) {
  const float scale = 1 / static_cast<float>(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      d_x[r * width + c] = rounded_to<T>(as_float(d_y[c]) * scale);
}
template <class T>
const auto spread_rows = vectorized<spread_rows_loop<T>>();

using MeanWindows = Pool<AvgPool>;

// sums [width] = the sum of rows [h.begin, h.end) of x.
template <class T>
WARPSTEP_LOOP void sum_rows_loop(const T* __restrict x, std::int64_t width, Reach h,
                                 float* __restrict sums) {
  std::int64_t i = h.begin;
  if (i + 2 <= h.end) {
    const T *a = x + i * width, *b = a + width;
    for (std::int64_t c = 0; c < width; ++c) sums[c] = as_float(a[c]) + as_float(b[c]);
    i += 2;
  } else {
    for (std::int64_t c = 0; c < width; ++c) sums[c] = 0;
  }
  for (; i < h.end; ++i)
    for (std::int64_t c = 0; c < width; ++c) sums[c] += as_float(x[i * width + c]);
}
template <class T>
const auto sum_rows = vectorized<sum_rows_loop<T>>();

// One row of `to`: for each pixel j, `share` times the sum of the pixels columns[j] of `from`.
template <class T, int lanes>
WARPSTEP_LOOP void sum_columns(const float* from, const std::vector<Reach>& columns,
                               std::int64_t channels, float share, T* to) {
  // GCC 12 keeps a vector of one float in a general register.
  using Floats = std::conditional_t<lanes == 1, float, typename VectorOf<lanes>::Floats>;
  for (const Reach w : columns) {
    for (std::int64_t c = 0; c < channels; c = next_vector<lanes>(c, channels)) {
      Floats sum{}, in;
      for (std::int64_t j = w.begin; j < w.end; ++j) {
        load_stored(in, from + j * channels + c);
        sum += in;
      }
      if constexpr (lanes == 1)
        to[c] = rounded_to<T>(sum * share);
      else
        store_stored(to + c, sum * share);
    }
    to += channels;
  }
}

// The inputs of each output along one axis.
std::vector<Reach> windows_of(const AvgPool& op, std::int64_t in, std::int64_t out) {
  std::vector<Reach> all;
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t first = i * op.stride - op.padding;
    all.push_back({std::max<std::int64_t>(0, first), std::min(first + op.window, in)});
  }
  return all;
}

// Each pixel of images of rows.size() rows is `share` times the sum of those in its rows and
// columns of images of `height` rows of `width` floats.
template <class T, int lanes>
std::unique_ptr<Kernel> window_kernel(const std::string& name, const MeanWindows& p,
                                      std::int64_t height, std::int64_t width,
                                      const std::vector<Reach>& rows,
                                      const std::vector<Reach>& columns) {
  static const auto sum_pixels = vectorized<sum_columns<T, lanes>, lanes>();
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  const float share = 1 / static_cast<float>(p.op.window * p.op.window);
  const auto run = [=](const Buffers& b) {
    const auto count = static_cast<std::int64_t>(rows.size()),
               row = static_cast<std::int64_t>(columns.size()) * p.channels;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (std::int64_t n = 0; n < p.images; ++n)
      for (std::int64_t i = 0; i < count; ++i) {
        float* sums = as<float>(b.workspace) + omp_get_thread_num() * width;
        sum_rows<T>(as<T>(b.in[0]) + n * height * width, width, rows[idx(i)], sums);
        sum_pixels(sums, columns, p.channels, share, as<T>(b.out[0]) + (n * count + i) * row);
      }
  };
  return host_kernel(name, run, idx(threads * width) * sizeof(float));
}

template <class T>
std::unique_ptr<Kernel> mean_kernel(const MeanWindows& p) {
  const std::int64_t pixels = p.height * p.width;
  if (p.op.window == 0)
    return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.images * p.image() > 65536)
      for (std::int64_t n = 0; n < p.images; ++n)
        mean_rows<T>(as<T>(b.in[0]) + n * p.image(), as<T>(b.out[0]) + n * p.channels, pixels,
                     p.channels);
    });
  return with_lanes<T>(p.channels, [&]<class S, int lanes>(const std::string& name) {
    return window_kernel<S, lanes>(name, p, p.height, p.row(),
                                   windows_of(p.op, p.height, p.out_height),
                                   windows_of(p.op, p.width, p.out_width));
  });
}

template <class T>
std::unique_ptr<Kernel> spread_kernel(const MeanWindows& p) {
  const std::int64_t pixels = p.height * p.width;
  if (p.op.window == 0)
    return host_kernel("loops", [=](const Buffers& b) {
#pragma omp parallel for schedule(static) if (p.images * p.image() > 65536)
      for (std::int64_t n = 0; n < p.images; ++n)
        spread_rows<T>(as<T>(b.in[0]) + n * p.channels, as<T>(b.out[0]) + n * p.image(), pixels,
                       p.channels);
    });
  return with_lanes<T>(p.channels, [&]<class S, int lanes>(const std::string& name) {
    return window_kernel<S, lanes>(name, p, p.out_height, p.out_row(),
                                   reach_of(p.op, p.height, p.out_height),
                                   reach_of(p.op, p.width, p.out_width));
  });
}

}  // namespace

std::unique_ptr<Kernel> bind(const AvgPool& op, const Operands& operands) {
  const MeanWindows p(op, operands.in_shape(0), operands.out_shape());
  return with_stored(operands.in(0).type.dtype, [&]<class T>() { return mean_kernel<T>(p); });
}

std::unique_ptr<Kernel> bind(const AvgPoolGrad& op, const Operands& operands) {
  const MeanWindows p(op.pool, op.input, operands.in_shape(0));
  return with_stored(operands.in(0).type.dtype, [&]<class T>() { return spread_kernel<T>(p); });
}

}  // namespace warpstep::cpu

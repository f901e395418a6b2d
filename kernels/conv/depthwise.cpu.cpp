// Depthwise convolutions: every channel by itself, with any kernel, stride, padding and dilation.
// Vectors of channels, a multiply-add for each tap; only the weights are packed. Forward and the
// data gradient are one loop: a pixel of the result is a sum over the taps that reach it, and
// pixels that are a step apart have the same taps. Bound by memory, with large kernels by the loads
// from the first cache, one for each multiply-add. Groups of 2, 4 or 8 channels and as many outputs
// are the same loop with a multiply-add for each channel of the group: in the one of number r, lane
// l of the result meets lane l ^ r of the images. Figures: bench/RECORDS.md.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t fewest_channels = 4;        // a vector of the smallest instruction set
constexpr std::int64_t large_depthwise = 1 << 15;  // multiply-adds; from here on a team is faster

// Calls body.operator()<i>() for i = 0 ... count - 1: an array of vectors stays in registers if
// every index is a constant.
template <int count, int i = 0, class Body>
WARPSTEP_LOOP void for_constants(Body body) {
  if constexpr (i < count) {
    body.template operator()<i>();
    for_constants<count, i + 1>(body);
  }
}

// A tap by which position j of a lattice sees position from + j * move of the other side.
struct AxisTap {
  std::int64_t number, from;
};
struct AxisTaps {
  const AxisTap *begin, *end;
};
struct Positions {
  std::int64_t begin, end;
};

// Positions first, first + step ... of one axis, which the same taps reach. Of these taps, those
// that meet the other side, of `extent`, are adjacent.
struct Lattice {
  std::int64_t first, step, count, move, extent;
  std::vector<AxisTap> taps{};

  std::int64_t size() const { return static_cast<std::int64_t>(taps.size()); }
  AxisTaps at(std::int64_t j) const {
    const auto has = [&](const AxisTap& tap) {
      return tap.from + j * move >= 0 && tap.from + j * move < extent;
    };
    const AxisTap *begin = taps.data(), *end = begin + taps.size();
    while (begin < end && !has(*begin)) ++begin;
    while (end > begin && !has(end[-1])) --end;
    return {begin, end};
  }
  // The positions at which a tap meets the other side.
  WARPSTEP_LOOP Positions inside(const AxisTap& tap) const {
    const std::int64_t begin = tap.from < 0 ? (move - 1 - tap.from) / move : 0,
                       end = tap.from < extent ? (extent - 1 - tap.from) / move + 1 : 0;
    return {begin, end < count ? end : count};
  }
  // Those of all of `many` taps; where there are none, they begin and end behind the last one.
  WARPSTEP_LOOP Positions inside(const AxisTap* tap, std::int64_t many) const {
    Positions all{0, count};
    for (std::int64_t t = 0; t < many; ++t) {
      const Positions own = inside(tap[t]);
      if (own.begin > all.begin) all.begin = own.begin;
      if (own.end < all.end) all.end = own.end;
    }
    return all.begin < all.end ? all : Positions{count, count};
  }
};

// Outputs see inputs.
std::vector<Lattice> forward_axis(const Conv& op, std::int64_t in, std::int64_t out) {
  Lattice all{0, 1, out, op.stride, in};
  for (std::int64_t k = 0; k < op.kernel; ++k)
    all.taps.push_back({k, k * op.dilation - op.padding});
  return {std::move(all)};
}

// Inputs see outputs, with a lattice for each residue of a position modulo the stride.
std::vector<Lattice> adjoint_axis(const Conv& op, std::int64_t in, std::int64_t out) {
  std::vector<Lattice> all;
  for (std::int64_t r = 0; r < std::min(op.stride, in); ++r) {
    Lattice lattice{r, op.stride, (in - r + op.stride - 1) / op.stride, 1, out};
    for (std::int64_t k = 0; k < op.kernel; ++k)
      if (const std::int64_t at = r + op.padding - k * op.dilation; at % op.stride == 0)
        lattice.taps.push_back({k, at / op.stride});
    all.push_back(std::move(lattice));
  }
  return all;
}

// Images x [x_height, x_width, channels], which images y see.
struct Depthwise {
  std::int64_t images, channels, kernel;
  std::int64_t x_height, x_width, y_height, y_width;
  std::vector<Lattice> rows, columns;
  bool relu = false;

  std::int64_t taps() const { return kernel * kernel; }
  std::int64_t x_row() const { return x_width * channels; }
  std::int64_t y_row() const { return y_width * channels; }
  bool is_large() const { return images * y_height * y_row() * taps() > large_depthwise; }
};

Depthwise forward_of(const Conv& op, const Shape& x, const Shape& z) {
  return {x[0],
          x[3],
          op.kernel,
          x[1],
          x[2],
          z[1],
          z[2],
          forward_axis(op, x[1], z[1]),
          forward_axis(op, x[2], z[2]),
          op.relu};
}
Depthwise adjoint_of(const Conv& op, const Shape& x, const Shape& z) {
  return {x[0],
          x[3],
          op.kernel,
          z[1],
          z[2],
          x[1],
          x[2],
          adjoint_axis(op, x[1], z[1]),
          adjoint_axis(op, x[2], z[2])};
}

// `count` pixels of a row of y, by the taps that all of them have.
template <class T>
struct PixelRun {
  AxisTaps rows, columns;
  std::int64_t kernel, channels;
  const T* x;                      // the image
  std::int64_t at, x_row, x_step;  // from x to the first pixel's tap of (0, 0); to the next pixel's
  const float* weights;            // [kernel, kernel, channels of a group, channels]
  const T* bias;                   // or null
  T* y;
  std::int64_t y_step, count;
  bool relu;
};

// Lane l gets lane from[l].
template <class Vector, class Ints>
WARPSTEP_LOOP void shuffle(Vector& vector, const Ints& from) {
#if defined(__clang__)
  vector = __builtin_shufflevector(vector, from);
#else
  vector = __builtin_shuffle(vector, from);
#endif
}

// Lane l has lane l ^ r of the vector.
template <int lanes, int r, class Vector>
WARPSTEP_LOOP void exchange(Vector& vector) {
  if constexpr (r > 0) {
    typename VectorOf<lanes>::Ints from;
    for (int l = 0; l < lanes; ++l) from[l] = l ^ r;
    shuffle(vector, from);
  }
}

template <class T, int lanes, int group, int pixels>
WARPSTEP_LOOP void gather_pixels(const PixelRun<T>& run, std::int64_t first) {
  using Floats = typename VectorOf<lanes>::Floats;
  const std::int64_t at = run.at + first * run.x_step;
  T* y = run.y + first * run.y_step;
  for (std::int64_t c = 0; c < run.channels; c = next_vector<lanes>(c, run.channels)) {
    Floats start{}, sum[pixels];
    if (run.bias) load_stored(start, run.bias + c);
    for_constants<pixels>([&]<int i>() __attribute__((always_inline)) { sum[i] = start; });
    for (const AxisTap* a = run.rows.begin; a < run.rows.end; ++a)
      for (const AxisTap* b = run.columns.begin; b < run.columns.end; ++b) {
        const T* x = run.x + (at + a->from * run.x_row + b->from * run.channels + c);
        const float* weights =
            run.weights + (a->number * run.kernel + b->number) * group * run.channels + c;
        for_constants<group>([&]<int r>() __attribute__((always_inline)) {
          Floats weight;
          load_stored(weight, weights + r * run.channels);
          for_constants<pixels>([&]<int i>() __attribute__((always_inline)) {
            Floats in;
            load_stored(in, x + i * run.x_step);
            exchange<lanes, r>(in);
            sum[i] += in * weight;
          });
        });
      }
    for_constants<pixels>([&]<int i>() __attribute__((always_inline)) {
      if (run.relu) rectify(sum[i]);
      store_stored(y + i * run.y_step + c, sum[i]);
    });
  }
}

template <class T, int lanes, int group>
WARPSTEP_LOOP void gather_run(const PixelRun<T>& run) {
  std::int64_t i = 0;
  for (; i + 8 <= run.count; i += 8) gather_pixels<T, lanes, group, 8>(run, i);
  for (; i + 3 <= run.count; i += 3) gather_pixels<T, lanes, group, 3>(run, i);
  for (; i < run.count; ++i) gather_pixels<T, lanes, group, 1>(run, i);
}

template <class T, int lanes, int group>
void gather(const Depthwise& d, const T* x, const float* weights, const T* bias, T* y) {
  static const auto gather_pixels_of = vectorized<gather_run<T, lanes, group>, lanes>();
#pragma omp parallel for collapse(2) schedule(static) if (d.is_large())
  for (std::int64_t n = 0; n < d.images; ++n)
    for (std::int64_t h = 0; h < d.y_height; ++h) {
      const Lattice& rows = d.rows[idx(h % d.rows[0].step)];
      const std::int64_t i = h / rows.step;
      const AxisTaps taps = rows.at(i);
      for (const Lattice& columns : d.columns) {
        const auto run = [&](std::int64_t j, std::int64_t count) {
          gather_pixels_of({.rows = taps,
                            .columns = columns.at(j),
                            .kernel = d.kernel,
                            .channels = d.channels,
                            .x = x + n * d.x_height * d.x_row(),
                            .at = i * rows.move * d.x_row() + j * columns.move * d.channels,
                            .x_row = d.x_row(),
                            .x_step = columns.move * d.channels,
                            .weights = weights,
                            .bias = bias,
                            .y = y + (n * d.y_height + h) * d.y_row() +
                                 (columns.first + j * columns.step) * d.channels,
                            .y_step = columns.step * d.channels,
                            .count = count,
                            .relu = d.relu});
        };
        const auto [begin, end] = columns.inside(columns.taps.data(), columns.size());
        for (std::int64_t j = 0; j < begin; ++j) run(j, 1);
        if (begin < end) run(begin, end - begin);
        for (std::int64_t j = end; j < columns.count; ++j) run(j, 1);
      }
    }
}

// A row of z and a row of taps: sums [taps] += over the pixels of z.
template <class T>
struct TapRow {
  const Lattice* columns;
  const T *x, *d_z;  // the row of x that the taps read, the row of z
  std::int64_t channels;
  float* sums;            // of the first tap
  std::int64_t sums_tap;  // floats from one tap to the next
};

// Taps [first, first + taps) of the row.
template <class T, int lanes, int taps>
WARPSTEP_LOOP void correlate_taps(const TapRow<T>& row, std::int64_t first) {
  using Floats = typename VectorOf<lanes>::Floats;
  const Lattice& columns = *row.columns;
  const AxisTap* tap = columns.taps.data() + first;
  const std::int64_t apart = taps > 1 ? (tap[1].from - tap[0].from) * row.channels : 0,
                     step = columns.move * row.channels;
  const Positions whole = columns.inside(tap, taps);
  float* sums = row.sums + first * row.sums_tap;
  for (std::int64_t c = 0; c < row.channels;
       c = next_vector<lanes>(c, row.channels), sums += lanes) {
    Floats sum[taps], gradient, in;
    for_constants<taps>([&]<int t>() __attribute__((always_inline)) { sum[t] = Floats{}; });
    const std::int64_t from = tap[0].from * row.channels + c;
    for (std::int64_t j = whole.begin; j < whole.end; ++j) {
      load_stored(gradient, row.d_z + j * row.channels + c);
      const T* x = row.x + (from + j * step);
      for_constants<taps>([&]<int t>() __attribute__((always_inline)) {
        load_stored(in, x + t * apart);
        sum[t] += in * gradient;
      });
    }
    // Pixels at which only some of the taps meet the image.
    for_constants<taps>([&]<int t>() __attribute__((always_inline)) {
      const auto [begin, end] = columns.inside(tap[t]);
      for (std::int64_t j = begin; j < end; ++j) {
        if (j == whole.begin) j = whole.end;
        if (j >= end) break;
        load_stored(gradient, row.d_z + j * row.channels + c);
        load_stored(in, row.x + (from + j * step + t * apart));
        sum[t] += in * gradient;
      }
    });
    for_constants<taps>([&]<int t>() __attribute__((always_inline)) {
      Floats before;
      load_stored(before, sums + t * row.sums_tap);
      store_stored(sums + t * row.sums_tap, before + sum[t]);
    });
  }
}

template <class T, int lanes>
WARPSTEP_LOOP void correlate_row(const TapRow<T>& row) {
  const std::int64_t taps = row.columns->size();
  std::int64_t t = 0;
  for (; t + 7 <= taps; t += 7) correlate_taps<T, lanes, 7>(row, t);
  for (; t + 5 <= taps; t += 5) correlate_taps<T, lanes, 5>(row, t);
  for (; t + 3 <= taps; t += 3) correlate_taps<T, lanes, 3>(row, t);
  for (; t < taps; ++t) correlate_taps<T, lanes, 1>(row, t);
}

// Per tap of a thread: whole vectors, of which the last may overlap the one before it.
std::int64_t floats_of_tap(std::int64_t channels, int lanes) {
  return (channels + lanes - 1) / lanes * lanes;
}

// to[i] = from[i ^ r], of at least a vector and of whole groups, whose size r is below.
template <class T, int lanes>
WARPSTEP_LOOP void exchange_row(const T* from, std::int64_t count, int r, T* to) {
  typename VectorOf<lanes>::Ints lane;
  for (int l = 0; l < lanes; ++l) lane[l] = l ^ r;
  for (std::int64_t i = 0; i < count; i = next_vector<lanes>(i, count)) {
    typename VectorOf<lanes>::Floats vector;
    load_stored(vector, from + i);
    shuffle(vector, lane);
    store_stored(to + i, vector);
  }
}

// Floats that a thread needs: the sums of all taps and, of groups, a row of z.
std::int64_t floats_of_thread(const Depthwise& d, std::int64_t group, int lanes) {
  return d.taps() * group * floats_of_tap(d.channels, lanes) + (group > 1 ? d.y_row() : 0);
}

// Each thread sums the taps over its share of the rows; these are added in their order. In groups
// (of float), the sums of number r are those of channel c and output c ^ r.
template <class T, int lanes>
void correlate(const Depthwise& d, std::int64_t group, int threads, const T* x, const T* d_z,
               T* d_weights, float* sums) {
  static const auto correlate_row_of = vectorized<correlate_row<T, lanes>, lanes>();
  static const auto exchange_row_of = vectorized<exchange_row<T, lanes>, lanes>();
  const std::int64_t all_rows = d.images * d.y_height, of_tap = floats_of_tap(d.channels, lanes),
                     of_number = d.taps() * of_tap, of_thread = floats_of_thread(d, group, lanes);
  const Lattice &rows = d.rows[0], &columns = d.columns[0];
#pragma omp parallel for schedule(static) num_threads(threads) if (d.is_large())
  for (int thread = 0; thread < threads; ++thread) {
    float* own = sums + thread * of_thread;
    std::fill_n(own, of_thread, 0.0F);
    for (std::int64_t row = all_rows * thread / threads; row < all_rows * (thread + 1) / threads;
         ++row) {
      const std::int64_t n = row / d.y_height, i = row % d.y_height;
      const AxisTaps taps = rows.at(i);
      for (int r = 0; r < group; ++r) {
        const T* gradients = d_z + row * d.y_row();
        if (r > 0) {
          auto* exchanged = reinterpret_cast<T*>(own + group * of_number);
          exchange_row_of(gradients, d.y_row(), r, exchanged);
          gradients = exchanged;
        }
        for (const AxisTap* a = taps.begin; a < taps.end; ++a)
          correlate_row_of({.columns = &columns,
                            .x = x + (n * d.x_height + a->from + i * rows.move) * d.x_row(),
                            .d_z = gradients,
                            .channels = d.channels,
                            .sums = own + r * of_number + a->number * d.kernel * of_tap,
                            .sums_tap = of_tap});
      }
    }
  }
  for (std::int64_t c = 0; c < d.channels; ++c) {
    const std::int64_t last = of_tap - lanes, at = c < last ? c : last + c - (d.channels - lanes);
    for (std::int64_t r = 0; r < group; ++r)
      for (std::int64_t t = 0; t < d.taps(); ++t) {
        float sum = 0;
        for (int thread = 0; thread < threads; ++thread)
          sum += sums[thread * of_thread + r * of_number + t * of_tap + at];
        d_weights[((c ^ r) * d.taps() + t) * group + c % group] = rounded_to<T>(sum);
      }
  }
}

// run.operator()<lanes>() with the floats of a vector that has no more than the channels.
template <class Run>
auto with_lanes(std::int64_t channels, Run run) {
  if (vector_lanes() >= 16 && channels >= 16) return run.template operator()<16>();
  if (vector_lanes() >= 8 && channels >= 8) return run.template operator()<8>();
  return run.template operator()<4>();
}

std::string name_of(std::int64_t group) {
  return group == 1 ? "depthwise, vector loops" : fmt::format("groups of {}, vector loops", group);
}

// What gather() reads: the weights [out, taps, channels of a group] or, for the data gradient,
// those that lead from each channel back.
template <class T, int group>
void pack_weights(const Depthwise& d, bool adjoint, const T* from, float* to) {
  for (std::int64_t t = 0; t < d.taps(); ++t)
    for (std::int64_t r = 0; r < group; ++r)
      for (std::int64_t c = 0; c < d.channels; ++c) {
        const std::int64_t out = adjoint ? c ^ r : c, in = adjoint ? c : c ^ r;
        to[(t * group + r) * d.channels + c] =
            as_float(from[(out * d.taps() + t) * group + in % group]);
      }
}

template <class T, int lanes, int group>
std::unique_ptr<Kernel> gather_kernel(Depthwise depthwise, bool bias, bool adjoint) {
  const std::size_t bytes = idx(depthwise.taps() * group * depthwise.channels) * sizeof(float);
  return host_kernel(
      name_of(group),
      [d = std::move(depthwise), bias, adjoint](const Buffers& b) {
        auto* weights = as<float>(b.workspace);
        pack_weights<T, group>(d, adjoint, as<T>(b.in[1]), weights);
        gather<T, lanes, group>(d, as<T>(b.in[0]), weights, bias ? as<T>(b.in[2]) : nullptr,
                                as<T>(b.out[0]));
      },
      bytes);
}

// Of in[0], the weights in[1] and, with `bias`, in[2].
std::unique_ptr<Kernel> gather_kernel(Depthwise depthwise, std::int64_t group, DType dtype,
                                      bool bias, bool adjoint) {
  if (group == 1)
    return with_stored(dtype, [&]<class T>() {
      return with_lanes(depthwise.channels, [&]<int lanes>() {
        return gather_kernel<T, lanes, 1>(std::move(depthwise), bias, adjoint);
      });
    });
  const auto make = [&]<int lanes>() {
    if (group == 2) return gather_kernel<float, lanes, 2>(std::move(depthwise), bias, adjoint);
    if (group == 4) return gather_kernel<float, lanes, 4>(std::move(depthwise), bias, adjoint);
    return gather_kernel<float, lanes, 8>(std::move(depthwise), bias, adjoint);
  };
  return std::min(vector_lanes(), depthwise.channels) >= 16 ? make.template operator()<16>()
                                                            : make.template operator()<8>();
}

}  // namespace

bool suits_depthwise(const Conv& op, const Shape& x, DType dtype) {
  const std::int64_t group = x[3] / op.groups, lanes = std::min(vector_lanes(), x[3]);
  return op.out == x[3] && (group == 1 ? lanes >= fewest_channels
                                       : (group == 2 || group == 4 || group == 8) &&
                                             dtype == DType::f32 && lanes >= 8);
}

std::unique_ptr<Kernel> depthwise_conv(const Conv& op, const Shape& x, const Shape& z,
                                       DType dtype) {
  return gather_kernel(forward_of(op, x, z), x[3] / op.groups, dtype, op.bias, false);
}

std::unique_ptr<Kernel> depthwise_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                            DType dtype) {
  return gather_kernel(adjoint_of(op, x, z), x[3] / op.groups, dtype, false, true);
}

std::unique_ptr<Kernel> depthwise_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                              DType dtype) {
  Depthwise depthwise = forward_of(op, x, z);
  const std::int64_t rows = op.bias ? z.count() / op.out : 0, group = x[3] / op.groups;
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  return with_stored(dtype, [&]<class T>() {
    return with_lanes(depthwise.channels, [&]<int lanes>() -> std::unique_ptr<Kernel> {
      std::size_t bytes = idx(threads * floats_of_thread(depthwise, group, lanes)) * sizeof(float);
      if (rows > 0) bytes = std::max(bytes, column_sums_workspace(rows, depthwise.channels));
      return host_kernel(
          name_of(group),
          [d = std::move(depthwise), group, threads, rows](const Buffers& b) {
            correlate<T, lanes>(d, group, threads, as<T>(b.in[0]), as<T>(b.in[1]), as<T>(b.out[0]),
                                as<float>(b.workspace));
            if (rows > 0)
              column_sums(as<T>(b.in[1]), rows, d.channels, as<T>(b.out[1]), b.workspace);
          },
          bytes);
    });
  });
}

}  // namespace warpstep::cpu

// Convolutions over images of few channels, the first ones of a network: forward and weight
// gradient. A row of taps is adjacent in memory across pixels, so the forward product reads the
// image as it is, from copies of its lines with their padding. The weight gradient packs all taps
// of some pixels first: its vectors are of taps, and each row of them would end in a part-filled
// one. Bound by arithmetic, with few output channels by part-filled vectors and by packing. All
// arithmetic is in f32: lines of bf16 are widened when they are copied, and rows of z pass through
// a row of floats. Figures: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/cpu_isa.h"
#include "kernels/cpu/floats.h"
#include "kernels/cpu/strided_tile.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

// Pixels of one row of z, for one panel of output channels.
struct NarrowTile {
  const float* const* lines;   // [kernel]: the padded lines that the taps read; null: all zero
  std::int64_t begin, pixel;   // where the first pixel's taps begin, and how far pixels are apart
  std::int64_t kernel, depth;  // taps per column; taps per row times channels
  const float *weights, *bias;
  float* z;
  std::int64_t z_pixel, columns;
  bool relu;
};

// What they do: narrow.inc.
struct NarrowLoops {
  void (*convolve_row)(const NarrowTile& row, std::int64_t pixels, std::int64_t out,
                       std::int64_t width);
  void (*pack_taps)(const float* const* lines, std::int64_t kernel, std::int64_t depth,
                    std::int64_t pixel, std::int64_t pixels, float* packed, std::int64_t pitch);
  void (*correlate)(const float* d_z, std::int64_t out, std::int64_t pixels, const float* packed,
                    std::int64_t pitch, float* sums, std::int64_t row);
  void (*add_pixels)(const float* d_z, std::int64_t out, std::int64_t pixels, float* scratch,
                     float* sums);
  std::int64_t lanes;
};

// Whole pixels, of more than one if they have few channels.
constexpr std::int64_t add_pixels_floats(std::int64_t out) {
  return std::max<std::int64_t>(1, 64 / out) * out;
}

namespace narrow {
#define WARPSTEP_SOURCE "kernels/conv/narrow.inc"
#include "engine/core/each_set.inc"
}  // namespace narrow

const NarrowLoops& narrow_loops =
    of_isa(narrow::avx512::loops, narrow::avx2::loops, narrow::plain::loops);

constexpr std::int64_t most_kernel = 11, most_channels = 7;

struct Narrow {
  Conv op;
  std::int64_t images, height, width, channels, out_height, out_width;

  Narrow(const Conv& conv, const Shape& x, const Shape& z)
      : op(conv),
        images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        out_height(z[1]),
        out_width(z[2]) {}

  std::int64_t depth() const { return op.kernel * channels; }
  std::int64_t rows() const { return images * out_height; }
  // A product reads whole vectors beyond the last tap of a line.
  std::int64_t line_floats() const {
    return ((width + 2 * op.padding) * channels + 2 * narrow_loops.lanes + 15) / 16 * 16;
  }
  std::int64_t lines_floats() const { return op.kernel * line_floats(); }
  std::int64_t z_row() const { return out_width * op.out; }
  // Of a row of z that is stored as T and needs a row of floats beside it.
  template <class T>
  std::int64_t z_floats() const {
    return std::is_same_v<T, float> ? 0 : (z_row() + 15) / 16 * 16;
  }

  // Copies the lines that output row `row` of the batch reads into `scratch`, whose padding is
  // zero.
  using Lines = std::array<const float*, most_kernel>;
  template <class T>
  Lines lines(const T* x, std::int64_t row, float* scratch) const {
    Lines found{};
    for (std::int64_t kh = 0; kh < op.kernel; ++kh) {
      const std::int64_t h = row % out_height * op.stride - op.padding + kh;
      if (h < 0 || h >= height) continue;
      float* line = scratch + kh * line_floats();
      convert_row(x + (row / out_height * height + h) * width * channels, width * channels,
                  line + op.padding * channels);
      found[idx(kh)] = line;
    }
    return found;
  }
};

std::string implementation() {
  return fmt::format("few channels, {}", name(cpu_isa()));
}

// Output channels per panel: two vectors, or fewer if they would be half empty.
std::int64_t panel_width(std::int64_t out) {
  const std::int64_t lanes = narrow_loops.lanes;
  if (lanes > 8 && out <= 8) return 8;
  return out <= lanes ? lanes : 2 * lanes;
}

// Workspace: the panels of weights and bias, then for each thread its lines, and its row of z.
template <class T>
std::unique_ptr<Kernel> conv_of(const Narrow& s) {
  const Conv& op = s.op;
  const std::int64_t width = panel_width(op.out), panels = (op.out + width - 1) / width;
  const std::int64_t taps = op.kernel * s.depth();
  const std::int64_t weights = panels * taps * width, bias = panels * width;
  const std::int64_t share = s.lines_floats() + s.z_floats<T>();
  const int threads = omp_get_max_threads();  // of the workspace, whichever thread enqueues
  const auto run = [=](const Buffers& b) {
    auto *packed = as<float>(b.workspace), *added = packed + weights;
    const auto* weight = as<T>(b.in[1]);
    for (std::int64_t o = 0; o < bias; ++o)
      added[o] = op.bias && o < op.out ? as_float(as<T>(b.in[2])[o]) : 0;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t begin =
          panel * width + width <= op.out || panel == 0 ? panel * width : op.out - width;
      for (std::int64_t k = 0; k < taps; ++k)
        for (std::int64_t o = 0; o < width; ++o)
          packed[(panel * taps + k) * width + o] =
              begin + o < op.out ? as_float(weight[(begin + o) * taps + k]) : 0;
    }
    SharedTasks rows(s.rows(), threads);
#pragma omp parallel num_threads(threads)
    {
      float* scratch = added + bias + omp_get_thread_num() * share;
      std::fill_n(scratch, s.lines_floats(), 0.0F);
      rows.take([&](std::int64_t row) {
        const Narrow::Lines lines = s.lines(as<T>(b.in[0]), row, scratch);
        T* z = as<T>(b.out[0]) + row * s.z_row();
        float* floats = scratch + s.lines_floats();
        if constexpr (std::is_same_v<T, float>) floats = z;
        narrow_loops.convolve_row({lines.data(), 0, op.stride * s.channels, op.kernel, s.depth(),
                                   packed, added, floats, op.out, 0, op.relu},
                                  s.out_width, op.out, width);
        if constexpr (!std::is_same_v<T, float>) convert_row(floats, s.z_row(), z);
      });
    }
  };
  return host_kernel(implementation(), run, idx(weights + bias + threads * share) * sizeof(float));
}

// Workspace: for each thread its lines and one of zeros, the taps of some pixels and their d_z as
// floats, and its sums, of the weights [out][taps] and of the bias [out], and add_pixels()'s.
template <class T>
std::unique_ptr<Kernel> weight_grad_of(const Narrow& s) {
  const Conv& op = s.op;
  // Of one block: few enough that a product's taps stay in the first cache.
  constexpr std::int64_t most_pixels = 96;
  const std::int64_t lanes = narrow_loops.lanes, taps = op.kernel * s.depth();
  const std::int64_t row = (taps + lanes - 1) / lanes * lanes;
  const std::int64_t pitch = row + lanes;  // what the last line's vector writes beyond it
  const std::int64_t packed_at = s.lines_floats() + s.line_floats();
  const std::int64_t d_z_at = packed_at + most_pixels * pitch;
  const std::int64_t sums_at = d_z_at + (std::is_same_v<T, float> ? 0 : most_pixels * op.out);
  const std::int64_t share =
      (sums_at + op.out * (row + 1) + add_pixels_floats(op.out) + 15) / 16 * 16;
  const std::int64_t parts = omp_get_max_threads();
  const auto run = [=](const Buffers& b) {
    auto* shares = as<float>(b.workspace);
#pragma omp parallel for schedule(static, 1)
    for (std::int64_t part = 0; part < parts; ++part) {
      float *scratch = shares + part * share, *packed = scratch + packed_at;
      float *sums = scratch + sums_at, *of_bias = sums + op.out * row;
      std::fill_n(scratch, share, 0.0F);
      const std::int64_t first = s.rows() * part / parts, end = s.rows() * (part + 1) / parts;
      const T* stored = as<T>(b.in[1]) + first * s.z_row();
      std::int64_t pixels = 0;  // packed, of rows that may be several
      const auto add_block = [&] {
        const float* d_z = nullptr;
        if constexpr (std::is_same_v<T, float>) {
          d_z = stored;
        } else {
          convert_row(stored, pixels * op.out, scratch + d_z_at);
          d_z = scratch + d_z_at;
        }
        narrow_loops.correlate(d_z, op.out, pixels, packed, pitch, sums, row);
        if (op.bias) narrow_loops.add_pixels(d_z, op.out, pixels, of_bias + op.out, of_bias);
        stored += pixels * op.out;
        pixels = 0;
      };
      for (std::int64_t r = first; r < end; ++r) {
        Narrow::Lines lines = s.lines(as<T>(b.in[0]), r, scratch);
        for (const float*& line : lines)
          if (!line) line = scratch + s.lines_floats();
        for (std::int64_t begin = 0; begin < s.out_width;) {
          const std::int64_t count = std::min(s.out_width - begin, most_pixels - pixels);
          narrow_loops.pack_taps(lines.data(), op.kernel, s.depth(), op.stride * s.channels, count,
                                 packed + pixels * pitch, pitch);
          pixels += count;
          begin += count;
          for (const float*& line : lines) line += count * op.stride * s.channels;
          if (pixels == most_pixels) add_block();
        }
      }
      if (pixels > 0) add_block();
    }
    const auto sum_at = [&](std::int64_t i) {
      float sum = 0;
      for (std::int64_t part = 0; part < parts; ++part) sum += shares[part * share + sums_at + i];
      return sum;
    };
    for (std::int64_t o = 0; o < op.out; ++o) {
      for (std::int64_t k = 0; k < taps; ++k)
        as<T>(b.out[0])[o * taps + k] = rounded_to<T>(sum_at(o * row + k));
      if (op.bias) as<T>(b.out[1])[o] = rounded_to<T>(sum_at(op.out * row + o));
    }
  };
  return host_kernel(implementation(), run, idx(parts * share) * sizeof(float));
}

}  // namespace

bool suits_narrow(const Conv& op, const Shape& x) {
  return x[3] <= most_channels && op.groups == 1 && op.dilation == 1 && op.kernel <= most_kernel;
}

std::unique_ptr<Kernel> narrow_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype) {
  return with_stored(dtype, [&]<class T>() { return conv_of<T>(Narrow(op, x, z)); });
}

std::unique_ptr<Kernel> narrow_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                           DType dtype) {
  return with_stored(dtype, [&]<class T>() { return weight_grad_of<T>(Narrow(op, x, z)); });
}

}  // namespace warpstep::cpu

// Convolutions to few channels, as the last ones of a decoder, and data gradients towards few, as
// those of an image. One product gives what each pixel adds to every position that a tap leads to;
// each line of the result gathers its share of that. The product reads every pixel once, where one
// over windows packs it for each tap and fills vectors with few channels only in part: here vectors
// hold pixels. Bound by arithmetic, with few channels on both sides by what passes between the two
// steps. Figures: bench/RECORDS.md.
#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/core/cpu_isa.h"
#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t most_taps = 11, most_few = 8;  // taps: of a line

// Position i of the source adds its tap k to position i * stride + k * step + first of the result.
struct ScatterAxis {
  std::int64_t from, to, stride, step, first;
};

// Of the positions j * stride + residue of a line of the result: tap `number` comes from j + move.
struct ScatterTap {
  std::int64_t number, move;
};

// Images [from, from, many] add to images [to, to, few].
struct Scatter {
  std::int64_t images, many, few, kernel;
  ScatterAxis rows, columns;
  bool forward = false, bias = false, relu = false;

  std::int64_t pixels() const { return rows.from * columns.from; }
  std::int64_t shares() const { return kernel * kernel * few; }
};

// A line of the result.
struct GatheredLine {
  const float* const* rows;  // [kernel]: the shares of the line that a tap comes from, or null
  const std::vector<ScatterTap>* taps;  // for each residue
  std::int64_t of_channel, of_tap;      // how far shares are apart
  const ScatterAxis& columns;
  std::int64_t kernel, few;
  const float* bias;
  bool relu;
  float* y;
};

// A vector of them that begins i before those in the middle has its first i lanes out, one that
// begins i before those at the end has only its first i lanes in.
constexpr std::int64_t most_lanes = 16;
constexpr auto lane_masks = [] {
  std::array<std::int32_t, 3 * most_lanes> masks{};
  for (std::int64_t l = most_lanes; l < 2 * most_lanes; ++l) masks[idx(l)] = -1;
  return masks;
}();

template <int lanes, class Floats>
WARPSTEP_LOOP void keep_lanes(Floats& vector, const std::int32_t* masks) {
  typename VectorOf<lanes>::Ints bits, mask;
  __builtin_memcpy(&bits, &vector, sizeof bits);
  __builtin_memcpy(&mask, masks, sizeof mask);
  bits &= mask;
  __builtin_memcpy(&vector, &bits, sizeof bits);
}

template <int lanes>
WARPSTEP_LOOP void gather_line(const GatheredLine& line) {
  using Floats = typename VectorOf<lanes>::Floats;
  const ScatterAxis& axis = line.columns;
  const std::int64_t stride = axis.stride;
  float sums[most_few][lanes];
  for (std::int64_t r = 0; r < std::min(stride, axis.to); ++r) {
    const std::int64_t count = (axis.to - r + stride - 1) / stride;
    for (std::int64_t j = 0; j < count; j += lanes) {
      for (std::int64_t c = 0; c < line.few; ++c) {
        Floats sum{};
        if (line.bias) sum += line.bias[c];
        for (std::int64_t k = 0; k < line.kernel; ++k) {
          if (!line.rows[k]) continue;
          Floats of_row{};
          for (const ScatterTap& tap : line.taps[r]) {
            const std::int64_t at = j + tap.move;
            if (at <= -lanes || at >= axis.from) continue;
            Floats share;
            load_stored(share, line.rows[k] + c * line.of_channel + tap.number * line.of_tap + at);
            if (at < 0) keep_lanes<lanes>(share, lane_masks.data() + most_lanes + at);
            if (at + lanes > axis.from)
              keep_lanes<lanes>(share, lane_masks.data() + 2 * most_lanes - (axis.from - at));
            of_row += share;
          }
          sum += of_row;
        }
        if (line.relu) rectify(sum);
        store_stored(sums[c], sum);
      }
      const std::int64_t present = std::min<std::int64_t>(lanes, count - j);
      float* y = line.y + (j * stride + r) * line.few;
      for (std::int64_t i = 0; i < present; ++i, y += stride * line.few)
        for (std::int64_t c = 0; c < line.few; ++c) y[c] = sums[c][i];
    }
  }
}

auto line_gatherer() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::avx512) return vectorized<gather_line<16>, 16>();
  if (cpu_isa() == CpuIsa::avx2) return &Versions<gather_line<8>>::avx2;
#endif
  return &Versions<gather_line<4>>::base;
}

// Residues of columns that the result has, each with its taps.
std::vector<std::vector<ScatterTap>> taps_of(const ScatterAxis& axis, std::int64_t kernel) {
  std::vector<std::vector<ScatterTap>> all(idx(std::min(axis.stride, axis.to)));
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t to = k * axis.step + axis.first,
                       residue = (to % axis.stride + axis.stride) % axis.stride;
    if (residue < axis.to) all[idx(residue)].push_back({k, (residue - to) / axis.stride});
  }
  return all;
}

// Workspace: the product's, then the shares of some images, between slack of a vector.
std::unique_ptr<Kernel> scattered(const Scatter& s) {
  constexpr std::int64_t slack = 16, most_floats = 1 << 18;
  const std::int64_t of_image = std::max<std::int64_t>(1, s.pixels() * s.shares());
  const std::int64_t chunk =
      std::clamp<std::int64_t>(most_floats / of_image, 1, std::max<std::int64_t>(1, s.images));
  const auto product_of = [&](std::int64_t images) {
    return std::make_shared<const Product>(
        ProductShape{s.shares(), images * s.pixels(), s.many},
        strided(s.forward ? Strides{s.many, 1} : Strides{1, s.shares()}), strided({s.many, 1}),
        PixelGrid::matrix(images * s.pixels()));
  };
  const auto product = product_of(chunk), last = product_of((s.images - 1) % chunk + 1);
  const std::int64_t floats = chunk * s.pixels() * s.shares() + 2 * slack;
  const std::size_t shares_bytes = idx((floats + slack - 1) / slack * slack) * sizeof(float);
  const auto run = [=, taps = taps_of(s.columns, s.kernel)](const Buffers& b) {
    static const auto gather = line_gatherer();
    const auto *x = as<float>(b.in[0]), *weights = as<float>(b.in[1]);
    const float* bias = s.bias ? as<float>(b.in[2]) : nullptr;
    float* shares = as<float>(b.workspace) + slack;
    void* rest = static_cast<std::byte*>(b.workspace) + shares_bytes;
    for (std::int64_t first = 0; first < s.images; first += chunk) {
      const std::int64_t images = std::min(chunk, s.images - first), plane = images * s.pixels();
      (images == chunk ? product : last)
          ->run(weights, x + first * s.pixels() * s.many, nullptr, shares, rest);
      const std::int64_t of_channel = plane * (s.forward ? s.kernel * s.kernel : 1),
                         of_tap = plane * (s.forward ? 1 : s.few);
#pragma omp parallel for collapse(2) schedule(static)
      for (std::int64_t n = 0; n < images; ++n)
        for (std::int64_t h = 0; h < s.rows.to; ++h) {
          std::array<const float*, most_taps> rows{};
          for (std::int64_t k = 0; k < s.kernel; ++k) {
            const std::int64_t at = h - k * s.rows.step - s.rows.first, i = at / s.rows.stride;
            if (at >= 0 && at % s.rows.stride == 0 && i < s.rows.from)
              rows[idx(k)] =
                  shares + k * s.kernel * of_tap + (n * s.rows.from + i) * s.columns.from;
          }
          gather({rows.data(), taps.data(), of_channel, of_tap, s.columns, s.kernel, s.few, bias,
                  s.relu,
                  as<float>(b.out[0]) + ((first + n) * s.rows.to + h) * s.columns.to * s.few});
        }
    }
  };
  return host_kernel(fmt::format("scattered, {}", name(cpu_isa())), run,
                     shares_bytes + std::max(product->workspace_bytes(), last->workspace_bytes()));
}

// One image's shares are in memory at a time, at least: 32 MiB at most.
bool suits(const Conv& op, DType dtype, std::int64_t pixels, std::int64_t many, std::int64_t few) {
  constexpr std::int64_t most_shares = 1 << 23;
  return dtype == DType::f32 && op.groups == 1 && op.kernel > 1 && op.kernel <= most_taps &&
         few <= most_few && few <= many && pixels * op.kernel * op.kernel * few <= most_shares;
}

}  // namespace

bool suits_scattered(const Conv& op, const Type& x) {
  return op.stride == 1 && suits(op, x.dtype, x.shape[1] * x.shape[2], x.shape[3], op.out);
}

bool suits_scattered_grad(const Conv& op, const Type& x) {
  const Shape z = convolved(op, x.shape);
  return suits(op, x.dtype, z[1] * z[2], op.out, x.shape[3]);
}

std::unique_ptr<Kernel> scattered_conv(const Conv& op, const Shape& x, const Shape& z) {
  return scattered({.images = x[0],
                    .many = x[3],
                    .few = op.out,
                    .kernel = op.kernel,
                    .rows = {x[1], z[1], 1, -op.dilation, op.padding},
                    .columns = {x[2], z[2], 1, -op.dilation, op.padding},
                    .forward = true,
                    .bias = op.bias,
                    .relu = op.relu});
}

std::unique_ptr<Kernel> scattered_data_grad(const Conv& op, const Shape& x, const Shape& z) {
  return scattered({.images = x[0],
                    .many = op.out,
                    .few = x[3],
                    .kernel = op.kernel,
                    .rows = {z[1], x[1], op.stride, op.dilation, -op.padding},
                    .columns = {z[2], x[2], op.stride, op.dilation, -op.padding}});
}

}  // namespace warpstep::cpu

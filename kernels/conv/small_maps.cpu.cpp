// Convolutions over a few pixels. A convolution is linear in the image: it is one product with a
// matrix of (pixel, channel) out by (pixel, channel) in, in which the weights are spread out. 3x3
// over 2x2 pixels with padding 1 fills that matrix: 16 of 16 pairs of pixels have a tap. A 1x1
// kernel needs no spreading. Bound by arithmetic; spreading moves 16 / 9 of the weights once.
// Figures: bench/RECORDS.md.
#include "kernels/conv/conv.cpu.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {
namespace {

constexpr std::int64_t most_pixels = 4;

std::int64_t pixels(const Shape& image) {
  return image[1] * image[2];
}

bool is_product(const Conv& op) {
  return op.kernel == 1 && op.stride == 1 && op.padding == 0;
}

dnnl::memory::desc rows_of(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {stride, std::int64_t{1}}};
}

dnnl::memory::desc transposed(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {std::int64_t{1}, stride}};
}

// The structure of that matrix: which tap connects a pixel of x with a pixel of z, or -1.
struct Spread {
  std::int64_t in_pixels, out_pixels, channels, out, taps;
  std::vector<int> tap;  // [out_pixels, in_pixels]

  Spread(const Conv& op, const Shape& x, const Shape& z)
      : in_pixels(pixels(x)),
        out_pixels(pixels(z)),
        channels(x[3]),
        out(op.out),
        taps(op.kernel * op.kernel) {
    for (std::int64_t p = 0; p < out_pixels; ++p)
      for (std::int64_t q = 0; q < in_pixels; ++q)
        tap.push_back(tap_of(op, {p / z[2], p % z[2]}, {q / x[2], q % x[2]}));
  }

  std::int64_t rows() const { return out_pixels * out; }
  std::int64_t columns() const { return in_pixels * channels; }
  std::size_t bytes() const { return idx(rows() * columns()) * sizeof(float); }

 private:
  using Pixel = std::array<std::int64_t, 2>;
  static int tap_of(const Conv& op, Pixel z, Pixel x) {
    std::int64_t index = 0;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t reach = x[axis] + op.padding - z[axis] * op.stride;
      const std::int64_t at = reach / op.dilation;
      if (reach < 0 || reach % op.dilation != 0 || at >= op.kernel) return -1;
      index = index * op.kernel + at;
    }
    return static_cast<int>(index);
  }
};

// weight [out, taps, channels] -> matrix [out_pixels, out, in_pixels, channels].
void spread_out(const Spread& s, const float* weight, float* matrix) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t p = row / s.out, o = row % s.out;
    for (std::int64_t q = 0; q < s.in_pixels; ++q) {
      float* to = matrix + (row * s.in_pixels + q) * s.channels;
      const int tap = s.tap[idx(p * s.in_pixels + q)];
      if (tap < 0)
        std::fill_n(to, s.channels, 0.0F);
      else
        std::copy_n(weight + (o * s.taps + tap) * s.channels, s.channels, to);
    }
  }
}

// The adjoint: each tap's gradient is the sum over the pairs of pixels that it connects.
void gather(const Spread& s, const float* matrix, float* weight) {
#pragma omp parallel for schedule(static)
  for (std::int64_t o = 0; o < s.out; ++o) {
    float* to = weight + o * s.taps * s.channels;
    std::fill_n(to, s.taps * s.channels, 0.0F);
    for (std::int64_t p = 0; p < s.out_pixels; ++p)
      for (std::int64_t q = 0; q < s.in_pixels; ++q) {
        const int tap = s.tap[idx(p * s.in_pixels + q)];
        if (tap < 0) continue;
        const float* from = matrix + ((p * s.out + o) * s.in_pixels + q) * s.channels;
        for (std::int64_t c = 0; c < s.channels; ++c) to[tap * s.channels + c] += from[c];
      }
  }
}

// A product with the spread weights: they are the first part of the workspace, the product's own
// workspace follows.
class SpreadKernel final : public Kernel {
 public:
  SpreadKernel(Spread spread, std::unique_ptr<Kernel> product, bool of_weights)
      : spread_(std::move(spread)), product_(std::move(product)), of_weights_(of_weights) {}

  std::size_t workspace_bytes() const override {
    return matrix_bytes() + product_->workspace_bytes();
  }
  std::string implementation() const override { return product_->implementation() + " spread"; }

  void enqueue(Stream& stream, const Buffers& b) const override {
    auto* matrix = as<float>(b.workspace);
    void* rest =
        product_->workspace_bytes() > 0 ? as<std::byte>(b.workspace) + matrix_bytes() : nullptr;
    if (of_weights_) {
      const std::array<void*, 1> out{matrix};
      product_->enqueue(stream, {b.in, out, rest});
      gather(spread_, matrix, as<float>(b.out[0]));
      return;
    }
    spread_out(spread_, as<float>(b.in[1]), matrix);
    const std::array<void*, 2> in{b.in[0], matrix};
    product_->enqueue(stream, {in, b.out, rest});
  }

 private:
  std::size_t matrix_bytes() const { return (spread_.bytes() + 63) / 64 * 64; }

  Spread spread_;
  std::unique_ptr<Kernel> product_;
  bool of_weights_;
};

std::unique_ptr<Kernel> product(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                int a_index, const dnnl::memory::desc& b, int b_index,
                                const dnnl::memory::desc& c, bool relu = false) {
  return primitive_kernel(engine, plan_matmul(engine, a, b, std::nullopt, c, relu),
                          {{DNNL_ARG_SRC, a, false, a_index},
                           {DNNL_ARG_WEIGHTS, b, false, b_index},
                           {DNNL_ARG_DST, c, true, 0}});
}

}  // namespace

bool suits_small_maps(const Conv& op, const Shape& x, const Shape& z) {
  return op.groups == 1 && !op.bias && pixels(x) <= most_pixels && pixels(z) <= most_pixels;
}

bool takes_small_maps(const Conv& op, const Value& x, const Value& z) {
  return x.layout.tag.empty() && z.layout.tag.empty() &&
         suits_small_maps(op, x.type.shape, z.type.shape);
}

std::unique_ptr<Kernel> small_map_conv(const dnnl::engine& engine, const Conv& op, const Shape& x,
                                       const Shape& z) {
  if (is_product(op)) {
    const std::int64_t rows = x[0] * pixels(x), c = x[3];
    return product(engine, rows_of(rows, c, c), 0, transposed(c, op.out, c), 1,
                   rows_of(rows, op.out, op.out), op.relu);
  }
  const Spread s(op, x, z);
  return std::make_unique<SpreadKernel>(s,
                                        product(engine, rows_of(x[0], s.columns(), s.columns()), 0,
                                                transposed(s.columns(), s.rows(), s.columns()), 1,
                                                rows_of(x[0], s.rows(), s.rows()), op.relu),
                                        false);
}

std::unique_ptr<Kernel> small_map_data_grad(const dnnl::engine& engine, const Conv& op,
                                            const Shape& x, const Shape& z) {
  if (is_product(op)) {
    const std::int64_t rows = x[0] * pixels(x), c = x[3];
    return product(engine, rows_of(rows, op.out, op.out), 0, rows_of(op.out, c, c), 1,
                   rows_of(rows, c, c));
  }
  const Spread s(op, x, z);
  return std::make_unique<SpreadKernel>(s,
                                        product(engine, rows_of(x[0], s.rows(), s.rows()), 0,
                                                rows_of(s.rows(), s.columns(), s.columns()), 1,
                                                rows_of(x[0], s.columns(), s.columns())),
                                        false);
}

std::unique_ptr<Kernel> small_map_weight_grad(const dnnl::engine& engine, const Conv& op,
                                              const Shape& x, const Shape& z) {
  if (is_product(op)) {
    const std::int64_t rows = x[0] * pixels(x), c = x[3];
    return product(engine, transposed(op.out, rows, op.out), 1, rows_of(rows, c, c), 0,
                   rows_of(op.out, c, c));
  }
  const Spread s(op, x, z);
  return std::make_unique<SpreadKernel>(s,
                                        product(engine, transposed(s.rows(), x[0], s.rows()), 1,
                                                rows_of(x[0], s.columns(), s.columns()), 0,
                                                rows_of(s.rows(), s.columns(), s.columns())),
                                        true);
}

}  // namespace warpstep::cpu

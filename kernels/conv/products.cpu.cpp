// Convolutions and their adjoints as matrix products over windows (kernels/cpu/gemm.h): any kernel,
// stride, padding, dilation and number of groups. Bound by arithmetic, with few channels by packing
// the windows. Multiplications by zero are left out where they would cost much:
//   strides     the data gradient is one product for each residue of a pixel's position modulo the
//               stride, with the taps that reach these pixels
//   small maps  on images of a few pixels most windows lie partly outside: there is a product for
//               each pixel, or in the weight gradient for each tap, with the part inside
#include "kernels/conv/conv.cpu.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gemm_bf16.h"

namespace warpstep::cpu {
namespace {

// Where a product's operands and its result begin, in elements.
template <class T>
struct Piece {
  std::unique_ptr<ProductOf<T>> product;
  std::int64_t a = 0, b = 0, c = 0, bias = 0;
};

// Positions first, first + step ... of one axis.
struct Steps {
  std::int64_t first, step, count;
};

// One axis of a convolution.
struct Axis {
  std::int64_t in, out, kernel, stride, padding, dilation;

  // The taps that meet the input at some output of [begin, end).
  Steps taps(std::int64_t begin, std::int64_t end) const {
    std::int64_t first = kernel, last = -1;
    for (std::int64_t k = 0; k < kernel; ++k)
      for (std::int64_t o = begin; o < end; ++o)
        if (const std::int64_t i = o * stride - padding + k * dilation; i >= 0 && i < in) {
          first = std::min(first, k);
          last = std::max(last, k);
        }
    return {first, 1, std::max<std::int64_t>(0, last - first + 1)};
  }
  // The outputs at which a tap meets the input.
  Steps outputs(std::int64_t tap) const {
    std::int64_t first = out, last = -1;
    for (std::int64_t o = 0; o < out; ++o)
      if (const std::int64_t i = o * stride - padding + tap * dilation; i >= 0 && i < in) {
        first = std::min(first, o);
        last = o;
      }
    return {first, 1, std::max<std::int64_t>(0, last - first + 1)};
  }
  // The taps by which outputs reach the inputs first, first + stride ... (`count` of them): from
  // input first + j * stride, tap number t leads to output top + j - t * back.
  struct Reach {
    Steps taps;
    std::int64_t top, back;
  };
  Reach reach(std::int64_t first, std::int64_t count) const {
    const std::int64_t apart = stride / std::gcd(stride, dilation);
    std::int64_t begin = kernel, last = -1;
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t at = first + padding - k * dilation;
      if (at % stride != 0) continue;
      const std::int64_t lowest = at / stride, highest = lowest + count - 1;
      if (highest < 0 || lowest >= out) continue;
      begin = std::min(begin, k);
      last = k;
    }
    if (last < 0) return {{0, 1, 0}, 0, 0};
    return {{begin, apart, (last - begin) / apart + 1},
            (first + padding - begin * dilation) / stride,
            apart * dilation / stride};
  }
};

struct Shapes {
  Conv op;
  std::int64_t images, channels, group_channels, group_out;
  Axis h, w;

  Shapes(const Conv& conv, const Shape& x, const Shape& z)
      : op(conv),
        images(x[0]),
        channels(x[3]),
        group_channels(x[3] / conv.groups),
        group_out(conv.out / conv.groups),
        h{x[1], z[1], conv.kernel, conv.stride, conv.padding, conv.dilation},
        w{x[2], z[2], conv.kernel, conv.stride, conv.padding, conv.dilation} {}

  std::int64_t features() const { return op.kernel * op.kernel * group_channels; }
  std::int64_t tap(std::int64_t kh, std::int64_t kw) const {
    return (kh * op.kernel + kw) * group_channels;
  }
  bool is_linear() const { return op.kernel == 1 && op.stride == 1 && op.padding == 0; }
  // Whether so many windows lie partly outside that each pixel is worth a product. Each product
  // packs its weights again: where fewer windows lie outside, it takes many images to gain by that,
  // and was measured in f32 only.
  bool has_small_maps(std::int64_t rows, std::int64_t columns, bool floats) const {
    constexpr std::int64_t few_pixels = 4, more_pixels = 9, many_images = 64;
    const std::int64_t pixels = rows * columns;
    return op.kernel > 1 &&
           (pixels <= few_pixels || (floats && pixels <= more_pixels && images >= many_images));
  }
};

template <class T>
class Products final : public Kernel {
 public:
  // For in[i], in[j] as operands a and b. `covers`: the pieces write all of the result.
  Products(std::vector<Piece<T>> pieces, int a, int b, bool covers, std::int64_t result)
      : pieces_(std::move(pieces)), a_(a), b_(b), covers_(covers), result_(result) {}

  void add_bias(int index) { bias_ = index; }
  void add_column_sums(std::int64_t rows, std::int64_t columns) {
    rows_ = rows;
    columns_ = columns;
  }

  std::string implementation() const override { return ProductOf<T>::implementation(); }
  std::size_t workspace_bytes() const override {
    std::size_t bytes = rows_ > 0 ? column_sums_workspace(rows_, columns_) : 0;
    for (const Piece<T>& piece : pieces_) bytes = std::max(bytes, piece.product->workspace_bytes());
    return bytes;
  }
  double flops() const override {
    double flops = 0;
    for (const Piece<T>& piece : pieces_) flops += piece.product->flops();
    return flops;
  }
  void enqueue(Stream&, const Buffers& b) const override {
    auto* c = as<T>(b.out[0]);
    if (!covers_) std::fill_n(c, result_, T{});
    for (const Piece<T>& piece : pieces_)
      piece.product->run(as<T>(b.in[idx(a_)]) + piece.a, as<T>(b.in[idx(b_)]) + piece.b,
                         bias_ < 0 ? nullptr : as<T>(b.in[idx(bias_)]) + piece.bias, c + piece.c,
                         b.workspace);
    if (rows_ > 0) column_sums(as<T>(b.in[1]), rows_, columns_, as<T>(b.out[1]), b.workspace);
  }

 private:
  std::vector<Piece<T>> pieces_;
  int a_, b_, bias_ = -1;
  bool covers_;
  std::int64_t result_, rows_ = 0, columns_ = 0;
};

// Calls run(first row, rows, first column, columns): the whole map, or each pixel of a small one.
template <class Run>
void for_parts(bool small, std::int64_t rows, std::int64_t columns, Run run) {
  if (!small) {
    run(0, rows, 0, columns);
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) run(i, 1, j, 1);
}

template <class T>
std::unique_ptr<Kernel> conv_of(const Conv& op, const Shape& x, const Shape& z) {
  const Shapes s(op, x, z);
  std::vector<Piece<T>> pieces;
  for (std::int64_t g = 0; g < op.groups; ++g)
    for_parts(
        s.has_small_maps(s.h.out, s.w.out, std::is_same_v<T, float>), s.h.out, s.w.out,
        [&](std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
          const Steps kh = s.h.taps(i, i + rows), kw = s.w.taps(j, j + columns);
          const std::int64_t k = kh.count * kw.count * s.group_channels;
          const Windows windows{.height = s.h.in,
                                .width = s.w.in,
                                .pitch = s.channels,
                                .channels = s.group_channels,
                                .rows = rows,
                                .columns = columns,
                                .stride = op.stride,
                                .taps_h = kh.count,
                                .taps_w = kw.count,
                                .top = i * op.stride - op.padding + kh.first * op.dilation,
                                .left = j * op.stride - op.padding + kw.first * op.dilation,
                                .step_h = op.dilation,
                                .step_w = op.dilation};
          Strides weights{s.features(), 1};
          if (kh.count * kw.count < op.kernel * op.kernel) {
            for (std::int64_t a = 0; a < kh.count; ++a)
              for (std::int64_t b = 0; b < kw.count; ++b)
                weights.segments.push_back(s.tap(kh.first + a, kw.first + b));
            weights.run = s.group_channels;
          }
          const PixelGrid grid{rows, columns, s.h.out * s.w.out * op.out, s.w.out * op.out, op.out};
          const bool whole = rows == s.h.out && columns == s.w.out;
          pieces.push_back(
              {std::make_unique<ProductOf<T>>(
                   ProductShape{s.images * rows * columns, s.group_out, k},
                   s.is_linear() ? strided({s.channels, 1}) : windowed(windows, Outer::windows),
                   strided(std::move(weights)), whole ? PixelGrid::matrix(op.out) : grid, op.relu),
               g * s.group_channels, g * s.group_out * s.features(),
               (i * s.w.out + j) * op.out + g * s.group_out, g * s.group_out});
        });
  auto kernel = std::make_unique<Products<T>>(std::move(pieces), 0, 1, true, z.count());
  if (op.bias) kernel->add_bias(2);
  return kernel;
}

template <class T>
std::unique_ptr<Kernel> data_grad_of(const Conv& op, const Shape& x, const Shape& z) {
  const Shapes s(op, x, z);
  std::vector<Piece<T>> pieces;
  bool covers = true;
  // Products of bf16 read taps fastest that lie one after the other.
  constexpr bool rising = std::is_same_v<T, Bf16>;
  const auto in_order = [](std::int64_t tap, std::int64_t taps) {
    return rising ? taps - 1 - tap : tap;
  };
  const auto add = [&](std::int64_t g, Steps h, Steps w) {
    const Axis::Reach rh = s.h.reach(h.first, h.count), rw = s.w.reach(w.first, w.count);
    if (rh.taps.count * rw.taps.count == 0) {
      covers = false;
      return;
    }
    const Windows windows{.height = s.h.out,
                          .width = s.w.out,
                          .pitch = op.out,
                          .channels = s.group_out,
                          .rows = h.count,
                          .columns = w.count,
                          .stride = 1,
                          .taps_h = rh.taps.count,
                          .taps_w = rw.taps.count,
                          .top = rising ? rh.top - (rh.taps.count - 1) * rh.back : rh.top,
                          .left = rising ? rw.top - (rw.taps.count - 1) * rw.back : rw.top,
                          .step_h = rising ? rh.back : -rh.back,
                          .step_w = rising ? rw.back : -rw.back};
    Strides weights{1, s.features(), {}, s.group_out};
    for (std::int64_t a = 0; a < rh.taps.count; ++a)
      for (std::int64_t b = 0; b < rw.taps.count; ++b)
        weights.segments.push_back(
            s.tap(rh.taps.first + in_order(a, rh.taps.count) * rh.taps.step,
                  rw.taps.first + in_order(b, rw.taps.count) * rw.taps.step));
    const PixelGrid grid{h.count, w.count, s.h.in * s.w.in * s.channels,
                         h.step * s.w.in * s.channels, w.step * s.channels};
    const bool whole = h.count == s.h.in && w.count == s.w.in;
    pieces.push_back(
        {std::make_unique<ProductOf<T>>(
             ProductShape{s.images * h.count * w.count, s.group_channels,
                          rh.taps.count * rw.taps.count * s.group_out},
             s.is_linear() ? strided({op.out, 1}) : windowed(windows, Outer::windows),
             strided(std::move(weights)), whole ? PixelGrid::matrix(s.channels) : grid),
         g * s.group_out, g * s.group_out * s.features(),
         (h.first * s.w.in + w.first) * s.channels + g * s.group_channels});
  };
  for (std::int64_t g = 0; g < op.groups; ++g) {
    if (s.has_small_maps(s.h.in, s.w.in, std::is_same_v<T, float>)) {
      for (std::int64_t i = 0; i < s.h.in; ++i)
        for (std::int64_t j = 0; j < s.w.in; ++j) add(g, {i, 1, 1}, {j, 1, 1});
      continue;
    }
    const auto residues = [&](const Axis& axis, std::int64_t first) {
      return Steps{first, op.stride, (axis.in - first + op.stride - 1) / op.stride};
    };
    for (std::int64_t i = 0; i < std::min(op.stride, s.h.in); ++i)
      for (std::int64_t j = 0; j < std::min(op.stride, s.w.in); ++j)
        add(g, residues(s.h, i), residues(s.w, j));
  }
  return std::make_unique<Products<T>>(std::move(pieces), 0, 1, covers, x.count());
}

template <class T>
std::unique_ptr<Kernel> weight_grad_of(const Conv& op, const Shape& x, const Shape& z) {
  const Shapes s(op, x, z);
  std::vector<Piece<T>> pieces;
  bool covers = true;
  // The gradient of the taps from (kh, kw) on, over a rectangle of outputs.
  const auto add = [&](std::int64_t g, std::int64_t kh, std::int64_t kw, std::int64_t taps, Steps h,
                       Steps w) {
    if (h.count * w.count == 0) {
      covers = false;
      return;
    }
    const Windows of_x{.height = s.h.in,
                       .width = s.w.in,
                       .pitch = s.channels,
                       .channels = s.group_channels,
                       .rows = h.count,
                       .columns = w.count,
                       .stride = op.stride,
                       .taps_h = taps,
                       .taps_w = taps,
                       .top = h.first * op.stride - op.padding + kh * op.dilation,
                       .left = w.first * op.stride - op.padding + kw * op.dilation,
                       .step_h = op.dilation,
                       .step_w = op.dilation};
    const Windows of_z{.height = s.h.out,
                       .width = s.w.out,
                       .pitch = op.out,
                       .channels = s.group_out,
                       .rows = h.count,
                       .columns = w.count,
                       .stride = 1,
                       .taps_h = 1,
                       .taps_w = 1,
                       .top = h.first,
                       .left = w.first,
                       .step_h = 1,
                       .step_w = 1};
    const bool whole = h.count == s.h.out && w.count == s.w.out;
    pieces.push_back(
        {std::make_unique<ProductOf<T>>(
             ProductShape{s.group_out, taps * taps * s.group_channels,
                          s.images * h.count * w.count},
             whole ? strided({1, op.out}) : windowed(of_z, Outer::features),
             s.is_linear() ? strided({1, s.channels}) : windowed(of_x, Outer::features),
             PixelGrid::matrix(s.features())),
         g * s.group_out, g * s.group_channels, g * s.group_out * s.features() + s.tap(kh, kw)});
  };
  for (std::int64_t g = 0; g < op.groups; ++g) {
    if (!s.has_small_maps(s.h.out, s.w.out, std::is_same_v<T, float>)) {
      add(g, 0, 0, op.kernel, {0, 1, s.h.out}, {0, 1, s.w.out});
      continue;
    }
    for (std::int64_t kh = 0; kh < op.kernel; ++kh)
      for (std::int64_t kw = 0; kw < op.kernel; ++kw)
        add(g, kh, kw, 1, s.h.outputs(kh), s.w.outputs(kw));
  }
  auto kernel =
      std::make_unique<Products<T>>(std::move(pieces), 1, 0, covers, op.out * s.features());
  if (op.bias) kernel->add_column_sums(z.count() / op.out, op.out);
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> product_conv(const Conv& op, const Shape& x, const Shape& z, DType dtype) {
  return with_stored(dtype, [&]<class T>() { return conv_of<T>(op, x, z); });
}

std::unique_ptr<Kernel> product_data_grad(const Conv& op, const Shape& x, const Shape& z,
                                          DType dtype) {
  return with_stored(dtype, [&]<class T>() { return data_grad_of<T>(op, x, z); });
}

std::unique_ptr<Kernel> product_weight_grad(const Conv& op, const Shape& x, const Shape& z,
                                            DType dtype) {
  return with_stored(dtype, [&]<class T>() { return weight_grad_of<T>(op, x, z); });
}

}  // namespace warpstep::cpu

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "kernels/conv/conv.ref.h"
#include "kernels/conv/narrow.cuda.h"
#include "kernels/conv/stem.cuda.h"
#include "kernels/pool/pool.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Floats;
using testing::random_values;
using testing::settled;

constexpr int multiprocessors = 4;

struct Sizes {
  NarrowConv conv;
  PoolShape pool;
  std::size_t in, out, pooled, weights;

  explicit Sizes(const NarrowConv& of) : conv(of) {
    const auto extent = [](std::int64_t n) { return static_cast<int>(n); };
    pool = {.batch = extent(of.images),
            .height = extent(of.height),
            .width = extent(of.width),
            .channels = extent(of.out),
            .out_height = extent(of.height / 2),
            .out_width = extent(of.width / 2),
            .relu = of.pool_relu};
    in = idx(of.images * of.height * of.width * of.in);
    out = idx(of.images * of.height * of.width * of.out);
    pooled = idx(of.images * (of.height / 2) * (of.width / 2) * of.out);
    weights = idx(of.out * 9 * of.in);
  }
};

// Of small images, wide and odd maps, with all numbers of channels a warp and a block can have.
std::vector<Sizes> with_pools() {
  std::vector<Sizes> all;
  for (const NarrowConv& conv :
       {NarrowConv{1, 32, 32, 8, 32}, NarrowConv{2, 16, 16, 32, 64}, NarrowConv{3, 8, 8, 64, 128},
        NarrowConv{2, 9, 11, 16, 32}, NarrowConv{2, 17, 6, 128, 16}, NarrowConv{1, 6, 61, 32, 32},
        NarrowConv{21, 2, 2, 8, 64}, NarrowConv{1, 3, 3, 16, 16}}) {
    NarrowConv pooled = conv;
    pooled.pooled = true;
    pooled.pool_relu = all.size() % 4 != 3;
    all.emplace_back(pooled);
  }
  return all;
}

class NarrowConvolution : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

#define TRACE_CONV(c)                                                                             \
  SCOPED_TRACE(::testing::Message() << (c).images << "x" << (c).height << "x" << (c).width << "x" \
                                    << (c).in << " to " << (c).out << " relu " << (c).pool_relu)

std::vector<double> in_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// The loops of the reference over a convolution's operands, as they were rounded.
struct Loops {
  Conv op;
  Shape x, z;

  explicit Loops(const NarrowConv& of)
      : x{of.images, of.height, of.width, of.in}, z{of.images, of.height, of.width, of.out} {
    op.out = of.out;
    op.kernel = 3;
    op.stride = op.padding = 1;
  }
  std::vector<double> forward(const Floats& in, const Floats& w, const Floats& bias) const {
    const std::vector<double> added = in_double(bias.values());
    std::vector<double> out(idx(z.count()));
    ref::convolve(op, x, z, in_double(in.values()).data(), in_double(w.values()).data(),
                  out.data());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += added[i % added.size()];
    return out;
  }
  std::vector<double> data_grad(const Floats& d_z, const Floats& w) const {
    std::vector<double> d_x(idx(x.count()));
    ref::convolve_data_grad(op, x, z, in_double(d_z.values()).data(), in_double(w.values()).data(),
                            d_x.data());
    return d_x;
  }
  // Followed by that of the bias.
  std::vector<double> weight_grad(const Floats& in, const Floats& d_z) const {
    const std::vector<double> of_z = in_double(d_z.values());
    const std::size_t weights = idx(op.out * 9 * x[3]);
    std::vector<double> both(weights + idx(op.out));
    ref::convolve_weight_grad(op, x, z, in_double(in.values()).data(), of_z.data(), both.data());
    for (std::size_t i = 0; i < of_z.size(); ++i) both[weights + i % idx(op.out)] += of_z[i];
    return both;
  }
};

// Expects the maxima of z's windows, and an index of a number that is one, up to `rounding`.
void expect_maxima(const Sizes& s, const std::vector<double>& z, const std::vector<float>& y,
                   const std::vector<std::uint8_t>& index, double rounding) {
  const std::size_t height = idx(s.conv.height / 2), width = idx(s.conv.width / 2),
                    channels = idx(s.conv.out), line = idx(s.conv.width);
  std::vector<double> maxima(s.pooled), chosen(s.pooled);
  for (std::size_t i = 0; i < s.pooled; ++i) {
    const std::size_t c = i % channels, column = i / channels % width,
                      row = i / channels / width % height, image = i / channels / width / height;
    const auto at = [&](std::size_t k) {
      const std::size_t z_row = image * idx(s.conv.height) + 2 * row + k / 2;
      return z[(z_row * line + 2 * column + k % 2) * channels + c];
    };
    maxima[i] = std::max({at(0), at(1), at(2), at(3)});
    if (s.conv.pool_relu) maxima[i] = std::max(0.0, maxima[i]);
    ASSERT_TRUE(index[i] < 4 || (s.conv.pool_relu && index[i] == no_maximum)) << i;
    chosen[i] = index[i] < 4 ? at(index[i]) : 0;
    ASSERT_TRUE(index[i] < 4 || !(y[i] > 0)) << i;
  }
  expect_near(y, maxima, rounding, rounding);
  expect_near(y, chosen, rounding, rounding);
}

TEST_P(NarrowConvolution, PoolsWhatItComputes) {
  for (const Sizes& s : with_pools()) {
    TRACE_CONV(s.conv);
    ASSERT_TRUE(has_narrow_product(s.conv));
    const Floats x(dtype(), random_values(s.in, 1, 1)), w(dtype(), random_values(s.weights, 1, 2)),
        bias(dtype(), random_values(idx(s.conv.out), 1, 3));
    const Array<std::uint8_t> index(s.pooled);
    const std::vector<float> found = settled([&] {
      const Floats y(dtype(), s.pooled);
      narrow_forward(s.conv,
                     {.x = x.data(),
                      .w = w.data(),
                      .bias = bias.data(),
                      .y = y.data(),
                      .y_index = index.data()},
                     false, multiprocessors, dtype(), nullptr);
      return y.values();
    });
    expect_maxima(s, Loops(s.conv).forward(x, w, bias), found, index.values(), epsilon(dtype()));
  }
}

TEST_P(NarrowConvolution, ReadsGradientsThroughThePool) {
  for (const Sizes& s : with_pools()) {
    TRACE_CONV(s.conv);
    ASSERT_TRUE(has_narrow_weight_grad(s.conv));
    const Floats x(dtype(), random_values(s.in, 1, 1)), w(dtype(), random_values(s.weights, 1, 2)),
        z(dtype(), random_values(s.out, 1, 3)), y(dtype(), s.pooled), d_z(dtype(), s.out),
        d_y(dtype(), random_values(s.pooled, 1, 4));
    const Array<std::uint8_t> index(s.pooled);
    max_pool(s.pool, z.data(), y.data(), index.data(), dtype(), nullptr);
    max_pool_grad(s.pool, d_y.data(), index.data(), d_z.data(), dtype(), nullptr);
    const Loops loops(s.conv);
    const double rounding = epsilon(dtype());

    const NarrowOperands operands{
        .x = x.data(), .w = w.data(), .d_y_index = index.data(), .d_y = d_y.data()};
    const auto data_grad = [&](const void* mask) {
      return settled([&] {
        const Floats d_x(dtype(), s.in);
        NarrowOperands with = operands;
        with.d_x = d_x.data();
        with.mask = mask;
        narrow_data_grad(s.conv, with, multiprocessors, dtype(), nullptr);
        return d_x.values();
      });
    };
    std::vector<float> found = data_grad(nullptr);
    expect_near(found, loops.data_grad(d_z, w), rounding, 1e-4);
    const std::vector<float> mask = x.values();
    for (std::size_t i = 0; i < found.size(); ++i)
      if (mask[i] <= 0) found[i] = 0;
    EXPECT_EQ(data_grad(x.data()), found);

    const std::vector<double> expected = loops.weight_grad(x, d_z);
    for (const int few_or_many : {multiprocessors, 132}) {  // which add up that many blocks' sums
      const Array<std::byte> workspace(narrow_weight_grad_workspace(s.conv, few_or_many));
      const std::vector<float> all = settled([&] {
        const Floats d_w(dtype(), s.weights), d_bias(dtype(), idx(s.conv.out));
        NarrowOperands with = operands;
        with.d_w = d_w.data();
        with.d_bias = d_bias.data();
        narrow_weight_grad(s.conv, with, workspace.data(), few_or_many, dtype(), nullptr);
        std::vector<float> both = d_w.values();
        for (const float value : d_bias.values()) both.push_back(value);
        return both;
      });
      expect_near(all, expected, rounding, 1e-4);
    }
  }
}

TEST_P(NarrowConvolution, ReluOfNaNIsNaN) {
  const NarrowConv conv{1, 4, 4, 8, 16};
  const Floats x(dtype(), std::vector<float>(idx(conv.height * conv.width * conv.in), NAN)),
      w(dtype(), std::vector<float>(idx(conv.out * 9 * conv.in), 1)),
      y(dtype(), idx(conv.height * conv.width * conv.out));
  const NarrowOperands operands{.x = x.data(), .w = w.data(), .y = y.data()};
  narrow_forward(conv, operands, true, multiprocessors, dtype(), nullptr);
  for (const float value : y.values()) ASSERT_TRUE(std::isnan(value));

  const StemConv stem{1, 4, 4, 40};
  const Floats pixels(dtype(), std::vector<float>(4 * 4 * 8, NAN)),
      weights(dtype(), std::vector<float>(40 * 7 * 7 * 8, 1)), of_stem(dtype(), 2 * 2 * 40);
  stem_forward(stem, pixels.data(), weights.data(), nullptr, true, of_stem.data(), multiprocessors,
               dtype(), nullptr);
  for (const float value : of_stem.values()) ASSERT_TRUE(std::isnan(value));
}

// One pixel of x is NaN, and with it 3x3 of z.
TEST_P(NarrowConvolution, PoolsOfNaNAreNaN) {
  for (const bool relu : {false, true}) {
    const NarrowConv conv{1, 8, 8, 8, 16, true, relu};
    std::vector<float> pixels(idx(conv.height * conv.width * conv.in), -1);
    pixels[idx((5 * conv.width + 2) * conv.in + 3)] = NAN;
    const Floats x(dtype(), pixels), w(dtype(), std::vector<float>(idx(conv.out * 9 * conv.in), 1)),
        y(dtype(), 4 * 4 * idx(conv.out));
    const Array<std::uint8_t> index(4 * 4 * idx(conv.out));
    narrow_forward(conv, {.x = x.data(), .w = w.data(), .y = y.data(), .y_index = index.data()},
                   false, multiprocessors, dtype(), nullptr);
    for (std::size_t i = 0; i < y.values().size(); ++i) {
      const auto pixel = i / idx(conv.out), row = pixel / 4, column = pixel % 4;
      const bool nan = (row == 2 || row == 3) && column < 2;
      ASSERT_EQ(std::isnan(y.values()[i]), nan) << i;
      if (!nan) continue;
      const int at = index.values()[i];
      ASSERT_LT(at, 4) << i;
      const int z_row = 2 * static_cast<int>(row) + at / 2,
                z_column = 2 * static_cast<int>(column) + at % 2;
      ASSERT_TRUE(z_row >= 4 && z_row <= 6 && z_column >= 1 && z_column <= 3) << i;
    }
  }
}

// With 8 channels the last product has one tap and the place of another.
TEST_P(NarrowConvolution, InfinityStaysOne) {
  const NarrowConv conv{1, 2, 2, 8, 16};
  std::vector<float> pixels(idx(conv.height * conv.width * conv.in));
  pixels[0] = INFINITY;
  const Floats x(dtype(), pixels), w(dtype(), std::vector<float>(idx(conv.out * 9 * conv.in), 1));
  for (const bool relu : {false, true}) {
    const Floats y(dtype(), idx(conv.height * conv.width * conv.out));
    narrow_forward(conv, {.x = x.data(), .w = w.data(), .y = y.data()}, relu, multiprocessors,
                   dtype(), nullptr);
    for (const float value : y.values()) ASSERT_EQ(value, INFINITY);
  }
}

TEST_P(NarrowConvolution, RefusesSizesThatItHasNoKernelsFor) {
  for (const NarrowConv& conv : {NarrowConv{1, 4, 4, 32, 64}, NarrowConv{1, 4, 4, 24, 8},
                                 NarrowConv{1, 4, 4, 16, 8, true}}) {
    EXPECT_THROW(narrow_forward(conv, {}, false, multiprocessors, dtype(), nullptr), DeviceError);
    EXPECT_THROW(narrow_data_grad(conv, {}, multiprocessors, dtype(), nullptr), DeviceError);
  }
  EXPECT_THROW(narrow_weight_grad({1, 4, 4, 24, 8}, {}, nullptr, multiprocessors, dtype(), nullptr),
               DeviceError);
  const StemConv stem{1, 4, 4, 72};
  EXPECT_THROW(stem_forward(stem, nullptr, nullptr, nullptr, false, nullptr, multiprocessors,
                            dtype(), nullptr),
               DeviceError);
  EXPECT_THROW(
      stem_weight_grad(stem, nullptr, nullptr, nullptr, nullptr, multiprocessors, dtype(), nullptr),
      DeviceError);
}

INSTANTIATE_TEST_SUITE_P(InSixteenBits, NarrowConvolution,
                         ::testing::Values(DType::f16, DType::bf16),
                         [](const auto& tested) { return std::string(name(tested.param)); });

}  // namespace
}  // namespace warpstep::cuda

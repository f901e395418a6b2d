#include <gtest/gtest.h>

#include "kernels/conv/narrow.cuda.h"
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

TEST_P(NarrowConvolution, PoolsWhatItComputes) {
  for (const Sizes& s : with_pools()) {
    TRACE_CONV(s.conv);
    ASSERT_TRUE(has_narrow_product(s.conv));
    const Floats x(dtype(), random_values(s.in, 1, 1)), w(dtype(), random_values(s.weights, 1, 2)),
        bias(dtype(), random_values(idx(s.conv.out), 1, 3)), z(dtype(), s.out),
        expected(dtype(), s.pooled);
    const Array<std::uint8_t> expected_index(s.pooled), index(s.pooled);
    NarrowConv plain = s.conv;
    plain.pooled = false;
    narrow_forward(plain, {.x = x.data(), .w = w.data(), .bias = bias.data(), .y = z.data()}, false,
                   multiprocessors, dtype(), nullptr);
    max_pool(s.pool, z.data(), expected.data(), expected_index.data(), dtype(), nullptr);
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
    EXPECT_EQ(found, expected.values());
    EXPECT_EQ(index.values(), expected_index.values());
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
    NarrowConv plain = s.conv;
    plain.pooled = false;

    const Floats expected(dtype(), s.in);
    narrow_data_grad(plain, {.w = w.data(), .d_y = d_z.data(), .d_x = expected.data()},
                     multiprocessors, dtype(), nullptr);
    const NarrowOperands operands{
        .x = x.data(), .w = w.data(), .d_y_index = index.data(), .d_y = d_y.data()};
    const std::vector<float> found = settled([&] {
      const Floats d_x(dtype(), s.in);
      NarrowOperands with = operands;
      with.d_x = d_x.data();
      narrow_data_grad(s.conv, with, multiprocessors, dtype(), nullptr);
      return d_x.values();
    });
    EXPECT_EQ(found, expected.values());

    const Array<std::byte> workspace(narrow_weight_grad_workspace(s.conv, multiprocessors));
    const Array<std::byte> of_plain(narrow_weight_grad_workspace(plain, multiprocessors));
    const Floats d_w(dtype(), s.weights), d_bias(dtype(), idx(s.conv.out));
    narrow_weight_grad(
        plain, {.x = x.data(), .d_y = d_z.data(), .d_w = d_w.data(), .d_bias = d_bias.data()},
        of_plain.data(), multiprocessors, dtype(), nullptr);
    const std::vector<float> all = settled([&] {
      const Floats own_d_w(dtype(), s.weights), own_d_bias(dtype(), idx(s.conv.out));
      NarrowOperands with = operands;
      with.d_w = own_d_w.data();
      with.d_bias = own_d_bias.data();
      narrow_weight_grad(s.conv, with, workspace.data(), multiprocessors, dtype(), nullptr);
      std::vector<float> both = own_d_w.values();
      for (const float value : own_d_bias.values()) both.push_back(value);
      return both;
    });
    // The tiles are others, and with them the order of the sums.
    std::vector<double> sums;
    for (const float value : d_w.values()) sums.push_back(static_cast<double>(value));
    for (const float value : d_bias.values()) sums.push_back(static_cast<double>(value));
    const double rounding = epsilon(dtype());
    expect_near(all, sums, 2 * rounding, 1e-4);
    // The bias gradient is the sum of what the pool's adjoint writes.
    const std::vector<float> terms = d_z.values();
    std::vector<double> columns(idx(s.conv.out));
    for (std::size_t i = 0; i < terms.size(); ++i)
      columns[i % columns.size()] += static_cast<double>(terms[i]);
    expect_near({all.begin() + static_cast<std::ptrdiff_t>(s.weights), all.end()}, columns,
                rounding, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(InSixteenBits, NarrowConvolution,
                         ::testing::Values(DType::f16, DType::bf16),
                         [](const auto& tested) { return std::string(name(tested.param)); });

}  // namespace
}  // namespace warpstep::cuda

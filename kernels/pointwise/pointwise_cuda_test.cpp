#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "kernels/pointwise/pointwise.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Floats;
using testing::random_values;
using testing::settled;

class PointwiseCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  std::int64_t width() const { return static_cast<std::int64_t>(16 / size_bytes(dtype())); }
};

// None, one, less than a vector, whole vectors, whole blocks, and one more.
const std::vector<std::size_t> counts{0, 1, 7, 8, 9, 255, 4096, 8192, 8193, 20011};

std::vector<float> signs(std::size_t count, unsigned seed) {
  std::vector<float> x = random_values(count, 2, seed);
  const std::vector<float> special{0.0F, -0.0F, std::numeric_limits<float>::quiet_NaN(),
                                   std::numeric_limits<float>::infinity(),
                                   -std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < special.size() && 3 * i < count; ++i) x[3 * i] = special[i];
  return x;
}

TEST_P(PointwiseCuda, Relu) {
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Floats x(dtype(), signs(count, 1));
    const std::vector<float> values = x.values();
    std::vector<double> expected;
    for (const float v : values) expected.push_back(v <= 0 ? 0 : static_cast<double>(v));
    const auto n = static_cast<std::int64_t>(count);
    expect_near(settled([&] {
                  const Floats y(dtype(), count);
                  relu(x.data(), y.data(), n, dtype(), nullptr);
                  return y.values();
                }),
                expected, 0);
    relu(x.data(), x.data(), n, dtype(), nullptr);
    expect_near(x.values(), expected, 0);
  }
}

// A ticket for each column block, and no more; all are 0 again. Rows for several blocks.
TEST_P(PointwiseCuda, ColumnSumsUseTheirTicketsAlone) {
  constexpr std::uint32_t other = 7;
  for (const std::int64_t channels : {8, 264, 1032}) {
    constexpr std::int64_t rows = 300;
    const std::size_t words = column_sums_tickets(channels);
    std::vector<std::uint32_t> before(words + 1);
    before.back() = other;
    const Array<std::uint32_t> tickets(before);
    const Floats x(dtype(), random_values(idx(rows * channels), 1, 7)),
        sums(dtype(), idx(channels));
    const testing::Memory workspace(column_sums_workspace(rows, channels));
    column_sums(x.data(), sums.data(), rows, channels, dtype(), workspace.data(), tickets.data(),
                nullptr);
    EXPECT_EQ(tickets.values(), before) << channels;
    std::vector<double> expected(idx(channels));
    const std::vector<float> values = x.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      expected[i % idx(channels)] += static_cast<double>(values[i]);
    expect_near(sums.values(), expected, 2 * epsilon(dtype()), 1e-4);
  }
}

TEST_P(PointwiseCuda, ReluGradInPlace) {
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Floats d_y(dtype(), random_values(count, 3, 2)), y(dtype(), signs(count, 3));
    const std::vector<float> d = d_y.values(), values = y.values();
    std::vector<double> expected;
    for (std::size_t i = 0; i < count; ++i)
      expected.push_back(values[i] <= 0 ? 0 : static_cast<double>(d[i]));
    relu_grad(d_y.data(), y.data(), d_y.data(), static_cast<std::int64_t>(count), dtype(), nullptr);
    expect_near(d_y.values(), expected, 0);
  }
}

TEST_P(PointwiseCuda, Add) {
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Floats a(dtype(), random_values(count, 3, 4)), b(dtype(), signs(count, 5));
    const std::vector<float> left = a.values(), right = b.values();
    std::vector<double> expected;
    for (std::size_t i = 0; i < count; ++i)
      expected.push_back(static_cast<double>(left[i]) + static_cast<double>(right[i]));
    const auto n = static_cast<std::int64_t>(count);
    expect_near(settled([&] {
                  const Floats y(dtype(), count);
                  add(a.data(), b.data(), y.data(), n, dtype(), nullptr);
                  return y.values();
                }),
                expected, epsilon(dtype()), 1e-7);
  }
}

TEST_P(PointwiseCuda, NormalizeFillsChannelsWithZeros) {
  const Array<std::uint8_t> x(std::vector<std::uint8_t>(513 * std::size_t{3}, 7));
  for (const int pitch : {8, 16}) {
    const NormalizeShape shape{513, 3, pitch, {1, 2, 3, 4}, {-1, 1, -2, 0.5F}};
    const Floats y(dtype(), 513 * idx(pitch));
    normalize(shape, x.data(), y.data(), dtype(), nullptr);
    const std::vector<float> values = y.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t c = i % idx(pitch);
      ASSERT_EQ(values[i], c == 0 ? 6 : c == 1 ? 15 : c == 2 ? 19 : 0) << i;
    }
  }
}

TEST_P(PointwiseCuda, BiasRelu) {
  for (const std::int64_t vectors : {1, 3, 5, 300})
    for (const std::size_t rows : {0, 1, 7, 100})
      for (const bool rectify : {false, true})
        for (const bool biased : {false, true}) {
          const auto channels = static_cast<std::size_t>(vectors * width());
          const std::vector<float> x = Floats(dtype(), signs(rows * channels, 6)).values();
          const Floats bias(dtype(), random_values(channels, 1, 7));
          const std::vector<float> shift = bias.values();
          std::vector<double> expected;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const double v =
                static_cast<double>(x[i]) + (biased ? static_cast<double>(shift[i % channels]) : 0);
            expected.push_back(rectify && v <= 0 ? 0 : v);
          }
          const Floats y(dtype(), x);
          bias_relu(y.data(), biased ? bias.data() : nullptr, rectify,
                    static_cast<std::int64_t>(rows), static_cast<std::int64_t>(channels), dtype(),
                    nullptr);
          expect_near(y.values(), expected, epsilon(dtype()), 1e-7);
        }
}

TEST_P(PointwiseCuda, ReluOfNaNIsNaN) {
  const std::vector<float> x(idx(width()), NAN);
  const auto channels = static_cast<std::int64_t>(width());
  const Floats whole(dtype(), x), single(dtype(), x), alone(dtype(), x);
  bias_relu(whole.data(), nullptr, true, 1, channels, dtype(), nullptr);
  const auto expect_nan = [](const std::vector<float>& values) {
    for (const float value : values) EXPECT_TRUE(std::isnan(value));
  };
  expect_nan(whole.values());
  bias_relu_unaligned(single.data(), nullptr, true, channels, 1, dtype(), nullptr);
  expect_nan(single.values());
  relu(alone.data(), alone.data(), channels, dtype(), nullptr);
  expect_nan(alone.values());
}

TEST_P(PointwiseCuda, RefusesChannelsThatAreNoWholeVectors) {
  const Floats y(dtype(), 9 * 2);
  EXPECT_THROW(bias_relu(y.data(), nullptr, true, 2, 9, dtype(), nullptr), DeviceError);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PointwiseCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

TEST(PointwiseCudaCopy, RowsFromOnePitchToAnother) {
  struct Size {
    std::size_t bytes;
    std::int64_t rows, columns, x_pitch, y_pitch;
  };
  for (const Size& size : {Size{4, 5, 10, 12, 16}, Size{4, 5, 10, 10, 12}, Size{2, 7, 10, 16, 24},
                           Size{2, 7, 10, 10, 16}, Size{2, 3, 16, 16, 16}, Size{1, 9, 17, 32, 48},
                           Size{1, 9, 3, 3, 4}, Size{4, 0, 10, 10, 10}, Size{2, 300, 8, 8, 9}}) {
    SCOPED_TRACE(::testing::Message() << size.bytes << ": " << size.columns << " of "
                                      << size.x_pitch << " -> " << size.y_pitch);
    std::vector<std::uint8_t> from(idx(size.rows * size.x_pitch) * size.bytes);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(1 + i % 255);
    std::vector<std::uint8_t> expected(idx(size.rows * size.y_pitch) * size.bytes);
    const std::size_t valid = idx(size.columns) * size.bytes;
    for (std::size_t row = 0; row < idx(size.rows); ++row)
      for (std::size_t i = 0; i < valid; ++i)
        expected[row * idx(size.y_pitch) * size.bytes + i] =
            from[row * idx(size.x_pitch) * size.bytes + i];
    const Array<std::uint8_t> x(from), y(expected.size());
    copy_rows(x.data(), size.x_pitch, y.data(), size.y_pitch, size.rows, size.columns, size.bytes,
              nullptr);
    EXPECT_EQ(y.values(), expected);
  }
}

TEST(PointwiseCudaErrors, NameTheKernelAndTheType) {
  try {
    relu(nullptr, nullptr, 1, DType::u8, nullptr);
    FAIL() << "u8 was taken";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("relu"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("u8"), std::string::npos);
  }
}

}  // namespace
}  // namespace warpstep::cuda

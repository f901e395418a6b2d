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
using testing::Memory;
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
    for (const float v : values) expected.push_back(v > 0 ? static_cast<double>(v) : 0);
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

TEST_P(PointwiseCuda, ReluGradInPlace) {
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Floats d_y(dtype(), random_values(count, 3, 2)), y(dtype(), signs(count, 3));
    const std::vector<float> d = d_y.values(), values = y.values();
    std::vector<double> expected;
    for (std::size_t i = 0; i < count; ++i)
      expected.push_back(values[i] > 0 ? static_cast<double>(d[i]) : 0);
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

TEST_P(PointwiseCuda, NormalizeWidensPixels) {
  for (const int channels : {1, 2, 3, 4})
    for (const int pitch : {8, 16})
      for (const std::size_t pixels : {0, 1, 7, 511, 512, 513, 1029}) {
        SCOPED_TRACE(::testing::Message() << pixels << " x " << channels << " -> " << pitch);
        const auto c = static_cast<std::size_t>(channels), p = static_cast<std::size_t>(pitch);
        std::vector<std::uint8_t> bytes(pixels * c);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
        const NormalizeShape shape{static_cast<std::int64_t>(pixels),
                                   channels,
                                   pitch,
                                   {0.01F, 0.02F, 0.03F, 0.04F},
                                   {-1, 1, -2, 0.5F}};
        std::vector<double> expected(pixels * p);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          expected[i / c * p + i % c] = bytes[i] * static_cast<double>(shape.scale[i % c]) +
                                        static_cast<double>(shape.shift[i % c]);
        const Array<std::uint8_t> x(bytes);
        expect_near(settled([&] {
                      const Floats y(dtype(), pixels * p);
                      normalize(shape, x.data(), y.data(), dtype(), nullptr);
                      return y.values();
                    }),
                    expected, epsilon(dtype()), 1e-6);
      }
}

TEST_P(PointwiseCuda, NormalizeConvertsFloats) {
  for (const int channels : {1, 3, 4})
    for (const std::size_t pixels : {0, 1, 7, 512, 1029}) {
      SCOPED_TRACE(::testing::Message() << pixels << " x " << channels);
      const auto c = static_cast<std::size_t>(channels);
      const std::vector<float> numbers = random_values(pixels * c, 3, 11);
      std::vector<double> expected(pixels * 8);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        expected[i / c * 8 + i % c] = static_cast<double>(numbers[i]);
      const Array<float> x(numbers);
      const NormalizeShape shape{static_cast<std::int64_t>(pixels), channels, 8, {1, 1, 1, 1}, {}};
      expect_near(settled([&] {
                    const Floats y(dtype(), pixels * 8);
                    normalize(shape, x.data(), y.data(), dtype(), nullptr);
                    return y.values();
                  }),
                  expected, dtype() == DType::f32 ? 0 : epsilon(dtype()) / 2);
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
            expected.push_back(rectify ? (v > 0 ? v : 0) : v);
          }
          const Floats y(dtype(), x);
          bias_relu(y.data(), biased ? bias.data() : nullptr, rectify,
                    static_cast<std::int64_t>(rows), static_cast<std::int64_t>(channels), dtype(),
                    nullptr);
          expect_near(y.values(), expected, epsilon(dtype()), 1e-7);
        }
}

TEST_P(PointwiseCuda, ColumnSums) {
  struct Size {
    std::int64_t rows, vectors;
  };
  for (const Size size : {Size{0, 1}, Size{1, 1}, Size{7, 3}, Size{128, 70}, Size{3000, 2},
                          Size{1021, 5}, Size{65, 33}, Size{4500, 1}}) {
    SCOPED_TRACE(::testing::Message() << size.rows << " x " << size.vectors);
    const std::int64_t channels = size.vectors * width();
    const auto columns = static_cast<std::size_t>(channels);
    const Floats x(dtype(), random_values(static_cast<std::size_t>(size.rows) * columns, 1, 8));
    std::vector<double> expected(columns);
    std::size_t i = 0;
    for (const float v : x.values()) expected[i++ % columns] += static_cast<double>(v);
    const Array<std::uint32_t> ticket(std::vector<std::uint32_t>{0});
    expect_near(settled([&] {
                  const Floats sums(dtype(), columns);
                  const Memory workspace(column_sums_workspace(size.rows, channels));
                  column_sums(x.data(), sums.data(), size.rows, channels, dtype(), workspace.data(),
                              ticket.data(), nullptr);
                  return sums.values();
                }),
                expected, epsilon(dtype()), 1e-4);
    EXPECT_EQ(ticket.value(), 0U);
  }
}

TEST_P(PointwiseCuda, ReluGradInPlaceWithSums) {
  for (const std::int64_t rows : {0, 1, 7, 1021, 4500})
    for (const std::int64_t vectors : {1, 3, 33}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << vectors);
      const std::int64_t channels = vectors * width();
      const std::size_t count = static_cast<std::size_t>(rows * channels);
      const Floats d_y(dtype(), random_values(count, 1, 9)), y(dtype(), signs(count, 10));
      std::vector<double> expected, expected_sums(static_cast<std::size_t>(channels));
      const std::vector<float> d = d_y.values(), of = y.values();
      for (std::size_t i = 0; i < count; ++i) {
        expected.push_back(of[i] > 0 ? static_cast<double>(d[i]) : 0);
        expected_sums[i % expected_sums.size()] += expected.back();
      }
      const Floats sums(dtype(), expected_sums.size());
      const Memory workspace(column_sums_workspace(rows, channels));
      const Array<std::uint32_t> ticket(std::vector<std::uint32_t>{0});
      relu_grad_sums(d_y.data(), y.data(), d_y.data(), sums.data(), rows, channels, dtype(),
                     workspace.data(), ticket.data(), nullptr);
      expect_near(d_y.values(), expected, 0);
      expect_near(sums.values(), expected_sums, epsilon(dtype()), 1e-4);
      EXPECT_EQ(ticket.value(), 0U);
    }
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

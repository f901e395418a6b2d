#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "kernels/pool/pool.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::expect_near;
using testing::Floats;
using testing::random_values;
using testing::settled;

PoolShape shape_of(int batch, int height, int width, int channels, int window, int stride = 1,
                   int padding = 0) {
  const auto out = [&](int extent) {
    return window == 0 ? 1 : (extent + 2 * padding - window) / stride + 1;
  };
  return {.batch = batch,
          .height = height,
          .width = width,
          .channels = channels,
          .out_height = out(height),
          .out_width = out(width),
          .window = window,
          .stride = stride,
          .padding = padding};
}

// Whole images of one pixel to more than a block's rows, one column vector to more than a block's;
// a window that is the whole image; windows with gaps, side by side, overlapping and padded.
std::vector<PoolShape> shapes() {
  return {
      shape_of(3, 1, 1, 8, 0),     shape_of(2, 7, 7, 40, 0),      shape_of(5, 2, 3, 8, 0),
      shape_of(1, 30, 31, 8, 0),   shape_of(2, 3, 3, 288, 0),     shape_of(2, 4, 4, 16, 4, 4),
      shape_of(1, 7, 9, 24, 2, 2), shape_of(2, 6, 5, 8, 3, 1, 1), shape_of(1, 9, 7, 16, 3, 2, 1),
      shape_of(1, 11, 8, 8, 2, 3), shape_of(0, 4, 4, 8, 0),       shape_of(1, 4, 4, 8, 4, 1, 2)};
}

std::size_t inputs(const PoolShape& s) {
  return idx(s.batch * s.height * s.width * s.channels);
}
std::size_t outputs(const PoolShape& s) {
  return idx(s.batch * s.out_height * s.out_width * s.channels);
}

// Calls visit(element of x, element of y, share of the first in the second).
template <class Visit>
void for_each_tap(const PoolShape& s, Visit visit) {
  const int rows = s.window == 0 ? s.height : s.window,
            columns = s.window == 0 ? s.width : s.window;
  for (int o = 0; o < static_cast<int>(outputs(s)); ++o) {
    const int c = o % s.channels, j = o / s.channels % s.out_width;
    const int i = o / s.channels / s.out_width % s.out_height;
    const int n = o / s.channels / s.out_width / s.out_height;
    for (int k = 0; k < rows * columns; ++k) {
      const int h = i * s.stride - s.padding + k / columns;
      const int w = j * s.stride - s.padding + k % columns;
      if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
      visit(idx(((n * s.height + h) * s.width + w) * s.channels + c), idx(o),
            1.0 / (rows * columns));
    }
  }
}

class AvgPoolCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

#define TRACE_SHAPE(s)                                                                            \
  SCOPED_TRACE(::testing::Message() << (s).height << "x" << (s).width << " window " << (s).window \
                                    << " stride " << (s).stride << " padding " << (s).padding)

TEST_P(AvgPoolCuda, TakesTheMean) {
  for (const PoolShape& shape : shapes()) {
    TRACE_SHAPE(shape);
    const Floats x(dtype(), random_values(inputs(shape), 1, 1));
    const std::vector<float> values = x.values();
    std::vector<double> expected(outputs(shape));
    for_each_tap(shape, [&](std::size_t from, std::size_t to, double share) {
      expected[to] += share * static_cast<double>(values[from]);
    });
    expect_near(settled([&] {
                  const Floats y(dtype(), outputs(shape));
                  avg_pool(shape, x.data(), y.data(), dtype(), nullptr);
                  return y.values();
                }),
                expected, epsilon(dtype()), 1e-6);
  }
}

TEST_P(AvgPoolCuda, GradientGoesToAllOfTheWindow) {
  for (const PoolShape& shape : shapes()) {
    TRACE_SHAPE(shape);
    const Floats d_y(dtype(), random_values(outputs(shape), 1, 2));
    const std::vector<float> values = d_y.values();
    std::vector<double> expected(inputs(shape));
    for_each_tap(shape, [&](std::size_t to, std::size_t from, double share) {
      expected[to] += share * static_cast<double>(values[from]);
    });
    expect_near(settled([&] {
                  const Floats d_x(dtype(), inputs(shape));
                  avg_pool_grad(shape, d_y.data(), d_x.data(), dtype(), nullptr);
                  return d_x.values();
                }),
                expected, epsilon(dtype()), 1e-6);
  }
}

TEST_P(AvgPoolCuda, RefusesChannelsThatAreNoWholeVectors) {
  for (const int window : {0, 2}) {
    const PoolShape shape = shape_of(1, 4, 4, 3, window);
    EXPECT_THROW(avg_pool(shape, nullptr, nullptr, dtype(), nullptr), DeviceError);
    EXPECT_THROW(avg_pool_grad(shape, nullptr, nullptr, dtype(), nullptr), DeviceError);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, AvgPoolCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

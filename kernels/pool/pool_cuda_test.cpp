#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "engine/graph/ops/pool.h"
#include "kernels/pool/pool.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Floats;
using testing::random_values;
using testing::settled;

static_assert(no_maximum == MaxPool::none);

constexpr float infinity = std::numeric_limits<float>::infinity();

PoolShape shape_of(int batch, int height, int width, int channels, int window, int stride,
                   int padding) {
  const auto out = [&](int extent) { return (extent + 2 * padding - window) / stride + 1; };
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

// Two f32 vectors, or one of 16 bits, and more; also shapes where rows or columns are left over,
// windows overlap or leave gaps, and padding.
std::vector<PoolShape> shapes() {
  return {shape_of(1, 2, 2, 8, 2, 2, 0),   shape_of(2, 8, 8, 32, 2, 2, 0),
          shape_of(3, 7, 9, 24, 2, 2, 0),  shape_of(1, 3, 5, 8, 1, 1, 0),
          shape_of(2, 9, 7, 24, 3, 2, 1),  shape_of(1, 6, 5, 8, 3, 1, 1),
          shape_of(1, 5, 4, 8, 2, 1, 1),   shape_of(2, 11, 8, 16, 2, 3, 0),
          shape_of(1, 21, 14, 8, 7, 7, 3), shape_of(1, 15, 16, 8, 15, 1, 0),
          shape_of(2, 8, 8, 16, 8, 8, 0),  shape_of(0, 4, 4, 8, 2, 2, 0)};
}

std::size_t inputs(const PoolShape& s) {
  return idx(s.batch * s.height * s.width * s.channels);
}
std::size_t outputs(const PoolShape& s) {
  return idx(s.batch * s.out_height * s.out_width * s.channels);
}

// Position of an output, and of element `k` of its window in x; -1 for padding.
struct Window {
  Window(const PoolShape& s, std::size_t o) : shape(s) {
    const int at = static_cast<int>(o);
    c = at % s.channels;
    j = at / s.channels % s.out_width;
    i = at / s.channels / s.out_width % s.out_height;
    n = at / s.channels / s.out_width / s.out_height;
  }
  int element(int k) const {
    const int h = i * shape.stride - shape.padding + k / shape.window;
    const int w = j * shape.stride - shape.padding + k % shape.window;
    if (h < 0 || h >= shape.height || w < 0 || w >= shape.width) return -1;
    return ((n * shape.height + h) * shape.width + w) * shape.channels + c;
  }
  const PoolShape& shape;
  int n, i, j, c;
};

struct Pooled {
  std::vector<double> y;
  std::vector<std::uint8_t> index;
};

Pooled pooled(const PoolShape& s, const std::vector<float>& x) {
  Pooled out;
  for (std::size_t o = 0; o < outputs(s); ++o) {
    const Window window(s, o);
    float best = -infinity;
    int at = -1;
    for (int k = 0; k < s.window * s.window; ++k) {
      const int from = window.element(k);
      if (from < 0) continue;
      if (at < 0) at = k;
      if (x[idx(from)] > best || std::isnan(x[idx(from)])) {
        best = x[idx(from)];
        at = k;
      }
    }
    const bool clamped = s.relu && best <= 0;
    out.y.push_back(clamped ? 0 : static_cast<double>(best));
    out.index.push_back(clamped ? MaxPool::none : static_cast<std::uint8_t>(at));
  }
  return out;
}

class PoolCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }

  void expect_pool(PoolShape shape, const std::vector<float>& values) const {
    for (const bool relu : {false, true}) {
      shape.relu = relu;
      const Floats x(dtype(), values);
      const Pooled expected = pooled(shape, x.values());
      const Array<std::uint8_t> index(outputs(shape));
      expect_near(settled([&] {
                    const Floats y(dtype(), outputs(shape));
                    max_pool(shape, x.data(), y.data(), index.data(), dtype(), nullptr);
                    return y.values();
                  }),
                  expected.y, 0);
      EXPECT_EQ(index.values(), expected.index);
    }
  }
};

#define TRACE_SHAPE(s)                                                                            \
  SCOPED_TRACE(::testing::Message() << (s).height << "x" << (s).width << " window " << (s).window \
                                    << " stride " << (s).stride << " padding " << (s).padding)

TEST_P(PoolCuda, TakesNaNAndPointsIntoTheImageWhereNothingIsAboveMinusInfinity) {
  for (const PoolShape& shape : shapes()) {
    TRACE_SHAPE(shape);
    std::vector<float> x = random_values(inputs(shape), 1, 3);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = std::numeric_limits<float>::quiet_NaN();
    expect_pool(shape, x);
    expect_pool(shape, std::vector<float>(x.size(), std::numeric_limits<float>::quiet_NaN()));
    expect_pool(shape, std::vector<float>(x.size(), -infinity));
  }
}

TEST_P(PoolCuda, RefusesChannelsThatAreNoWholeVectors) {
  const PoolShape shape = shape_of(1, 2, 2, 3, 2, 2, 0);
  EXPECT_THROW(max_pool(shape, nullptr, nullptr, nullptr, dtype(), nullptr), DeviceError);
  EXPECT_THROW(max_pool_grad(shape, nullptr, nullptr, nullptr, dtype(), nullptr), DeviceError);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PoolCuda, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace warpstep::cuda

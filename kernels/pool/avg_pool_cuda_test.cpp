#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "kernels/pool/pool.cuda.h"

namespace warpstep::cuda {
namespace {

PoolShape shape_of(int batch, int height, int width, int channels, int window) {
  const auto out = [&](int extent) { return window == 0 ? 1 : extent - window + 1; };
  return {.batch = batch,
          .height = height,
          .width = width,
          .channels = channels,
          .out_height = out(height),
          .out_width = out(width),
          .window = window,
          .stride = 1,
          .padding = 0};
}

class AvgPoolCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

TEST_P(AvgPoolCuda, OfNoImagesIsNothing) {
  for (const int window : {0, 2}) {
    avg_pool(shape_of(0, 4, 4, 8, window), nullptr, nullptr, dtype(), nullptr);
    avg_pool_grad(shape_of(0, 4, 4, 8, window), nullptr, nullptr, dtype(), nullptr);
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

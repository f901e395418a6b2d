#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "kernels/linear/few.cuda.h"
#include "tests/device_memory.h"

namespace warpstep::cuda {
namespace {

using testing::Floats;

class FewOutputsCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

TEST_P(FewOutputsCuda, ReluOfNaNIsNaNAndPassesItsGradient) {
  const FewOutputs layer{.rows = 2, .inputs = 16, .outputs = 8, .pitch = 8};
  const Floats x(dtype(), std::vector<float>(2 * 16, NAN)),
      w(dtype(), std::vector<float>(8 * 16, 1)), y(dtype(), 2 * 8);
  few_forward(layer, x.data(), w.data(), nullptr, true, y.data(), dtype(), nullptr);
  for (const float value : y.values()) EXPECT_TRUE(std::isnan(value));

  const Floats d_y(dtype(), std::vector<float>(2 * 8, 1)), d_x(dtype(), 2 * 16),
      d_bias(dtype(), 16);
  few_data_grad(layer, d_y.data(), w.data(), x.data(), d_x.data(), d_bias.data(), dtype(), nullptr);
  EXPECT_EQ(d_x.values(), std::vector<float>(2 * 16, 8));
}

TEST_P(FewOutputsCuda, RefusesMoreOutputs) {
  const FewOutputs layer{.rows = 2, .inputs = 16, .outputs = 24, .pitch = 24};
  EXPECT_THROW(few_forward(layer, nullptr, nullptr, nullptr, false, nullptr, dtype(), nullptr),
               DeviceError);
}

INSTANTIATE_TEST_SUITE_P(DTypes, FewOutputsCuda,
                         ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& tested) { return std::string(name(tested.param)); });

}  // namespace
}  // namespace warpstep::cuda

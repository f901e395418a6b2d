// Convolutions of nothing, which no case has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/core/error.h"
#include "tests/tested_backend.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::Trial;

// By the kernel that takes images in turns, forward and data gradient, and by another. cuDNN has no
// tensors without elements: its refusal names the layer.
TEST(Conv, ComputesNothingOfNoImages) {
  std::shared_ptr<Backend> backend;
  try {
    backend = testing_support::open_tested_backend(testing_support::tested_backend());
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  for (const auto& [channels, out] : {std::pair{64, 3}, {8, 30}, {30, 30}})
    for (const std::int64_t height : {0, 9}) {
      cases::Case c;
      const Tensor x = cases::input(c, "x", {DType::f32, {0, height, 7, channels}});
      conv("conv", x, {.out = out, .kernel = 3, .padding = 2});
      c = cases::with_adjoint(std::move(c));
      if (testing_support::tests_cuda()) {
        EXPECT_THAT([&] { Trial(c, backend).run(); }, ThrowsMessage<Error>(HasSubstr("conv/conv")));
        continue;
      }
      EXPECT_EQ(Trial(c, backend).run(), Trial(c, open_backend("ref")).run())
          << channels << " to " << out << " channels";
    }
}

}  // namespace
}  // namespace warpstep

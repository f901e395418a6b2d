// Convolutions with options and numbers that no case has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "tests/tested_backend.h"
#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::Result;
using testing_support::Trial;

// Groups may be computed together, with weights of zero between them, but not with exact_math: NaN
// times 0 is NaN.
TEST(Conv, KeepsNaNInItsGroupWithExactMath) {
  if (testing_support::tests_cuda()) GTEST_SKIP() << "cuDNN may spread NaN";
  const auto backend =
      testing_support::open_tested_backend(testing_support::tested_backend(), {.exact_math = true});
  for (const std::int64_t out : {8, 16}) {
    cases::Case c;
    const Tensor x = cases::input(c, "x", {DType::f32, {2, 9, 7, 8}}, {.nan = true});
    conv("conv", x, {.out = out, .kernel = 3, .padding = 1, .groups = 4});
    const std::vector<Result> ours = Trial(c, backend).run();
    const std::vector<Result> theirs = Trial(c, open_backend("ref")).run();
    ASSERT_EQ(ours[0].floats.size(), theirs[0].floats.size());
    std::size_t finite = 0;
    for (std::size_t i = 0; i < ours[0].floats.size(); ++i) {
      const bool nan = std::isnan(theirs[0].floats[i]);
      ASSERT_EQ(std::isnan(ours[0].floats[i]), nan) << out << " outputs, number " << i;
      finite += nan ? 0 : 1;
    }
    EXPECT_GT(finite, 0U);
  }
}

// Winograd's weight gradient in several chunks of tiles, whose sums the threads share as they are
// large, and weights that stay in no cache: too much for the reference, so against products.
TEST(Conv, AddsLargeWeightGradientsInChunks) {
  if (testing_support::tests_cuda()) GTEST_SKIP() << "a kernel of the CPU's";
  cases::Case c;
  const Tensor x = cases::input(c, "x", {DType::f32, {86, 6, 6, 352}});
  conv("conv", x, {.out = 336, .kernel = 3, .padding = 1});
  c = cases::with_adjoint(std::move(c));
  const auto run = [&](bool exact_math) {
    return Trial(c, testing_support::open_tested_backend(testing_support::tested_backend(),
                                                         {.exact_math = exact_math}))
        .run();
  };
  const std::vector<Result> ours = run(false), theirs = run(true);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t r = 0; r < ours.size(); ++r)
    EXPECT_LT(testing_support::relative_difference(ours[r].floats, theirs[r].floats), 1e-5)
        << ours[r].what;
  EXPECT_NE(ours[0].floats, theirs[0].floats) << "the same kernel";
}

// Of which only the first window is there.
TEST(Conv, TakesAnyStride) {
  if (testing_support::tests_cuda()) GTEST_SKIP() << "the library has limits of its own";
  const auto backend = testing_support::open_tested_backend(testing_support::tested_backend());
  cases::Case c;
  const Tensor x = cases::input(c, "x", {DType::f32, {2, 5, 6, 3}});
  conv("conv", x, {.out = 8, .kernel = 3, .stride = std::int64_t{1} << 40, .padding = 1});
  c = cases::with_adjoint(std::move(c));
  const std::vector<Result> ours = Trial(c, backend).run();
  const std::vector<Result> theirs = Trial(c, open_backend("ref")).run();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t r = 0; r < ours.size(); ++r)
    EXPECT_LT(testing_support::relative_difference(ours[r].floats, theirs[r].floats), 1e-5)
        << ours[r].what;
}

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

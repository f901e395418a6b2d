// Convolutions of the CPU backend with options, sizes and numbers that no case has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing_support::Result;
using testing_support::Trial;

// Groups may be computed together, with weights of zero between them, but not with exact_math: NaN
// times 0 is NaN.
TEST(Conv, KeepsNaNInItsGroupWithExactMath) {
  const auto backend = open_backend("cpu", {.exact_math = true});
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
  cases::Case c;
  const Tensor x = cases::input(c, "x", {DType::f32, {86, 6, 6, 352}});
  conv("conv", x, {.out = 336, .kernel = 3, .padding = 1});
  c = cases::with_adjoint(std::move(c));
  const auto run = [&](bool exact_math) {
    return Trial(c, open_backend("cpu", {.exact_math = exact_math})).run();
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
  const auto backend = open_backend("cpu");
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

}  // namespace
}  // namespace warpstep
